"""One round of federated extreme classification: four questions, one place.

`request` (which class rows), `objective` and `client_work` (what is minimised
on them), `merge` (how updates are joined), `server` (what the server does last)
and `process`, which composes them into a `tff.learning` process.
"""
