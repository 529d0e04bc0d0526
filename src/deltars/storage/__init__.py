"""Access to files on local disk and in object stores, behind one small interface."""

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.storage.location import Location, parse_location
    from deltars.storage.opening import open_storage
    from deltars.storage.places import Places, Relation
    from deltars.storage.put_probe import refuse_overwriting, refuse_unwritable, try_storage
    from deltars.storage.storage import ObjectInfo, Storage, Writer
else:
    __getattr__ = late_names(
        __name__,
        {
            "location": "Location parse_location",
            "opening": "open_storage",
            "places": "Places Relation",
            "put_probe": "refuse_overwriting refuse_unwritable try_storage",
            "storage": "ObjectInfo Storage Writer",
        },
    )
