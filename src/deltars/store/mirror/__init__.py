"""Mirror data in the catalog: status, leases, records, and the content of checkpoints."""
