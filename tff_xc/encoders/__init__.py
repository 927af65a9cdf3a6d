"""The networks of the papers, as functional encoders."""
