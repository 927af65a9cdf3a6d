"""A round: `algorithm` holds the answers to its four questions.

`request`: which rows does a client request? `losses` and `local_training`: what
does it minimise on them? `merge`: how are rows merged? `server` and `optimizers`:
what does the server do last? `tables` joins the answers for one table, and
`process` composes a round.
"""
