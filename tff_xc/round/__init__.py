"""Training rounds. An algorithm answers four questions about a round.

  1. Which rows of a table does a client request? See `request`.
  2. Which loss does the client minimise on these rows? See `losses` and `local_training`.
  3. How does the server merge the clients' rows? See `merge`.
  4. What does the server do last? See `server` and `optimizers`.

`tables` combines the answers for one table, and `algorithm` combines all answers. `process` builds
the TFF process that runs a round.
"""
