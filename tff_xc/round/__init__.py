"""One round of federated extreme classification, as answers to four questions.

`request`: which class rows does a client request? `objective` and
`client_work`: what does it minimise on them? `merge`: how are updates joined?
`server`: what does the server do last? `process` composes the answers into a
`tff.learning` process.
"""
