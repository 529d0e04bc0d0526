"""The mirror: publishes the catalog's commits to each table's `_delta_log`, where any Delta reader finds them."""

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.mirror.cleanup import clean_up_log
    from deltars.mirror.deletion import Deletion
    from deltars.mirror.divergence import Divergence
    from deltars.mirror.manifests import write_manifests
    from deltars.mirror.orphans import MIN_AGE
    from deltars.mirror.outcome import MirrorOutcome, Publication
    from deltars.mirror.publisher import Publisher
    from deltars.mirror.purge import Purge
    from deltars.mirror.reconciler import Reconciler, Reconciliation
    from deltars.mirror.repair import Repair
    from deltars.mirror.verify import Verification, Verifier
else:
    __getattr__ = late_names(
        __name__,
        {
            "cleanup": "clean_up_log",
            "deletion": "Deletion",
            "divergence": "Divergence",
            "manifests": "write_manifests",
            "orphans": "MIN_AGE",
            "outcome": "MirrorOutcome Publication",
            "publisher": "Publisher",
            "purge": "Purge",
            "reconciler": "Reconciler Reconciliation",
            "repair": "Repair",
            "verify": "Verification Verifier",
        },
    )
