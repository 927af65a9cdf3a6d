"""Tasks (data, encoder, head and hyper-parameters), and the papers' published numbers."""
