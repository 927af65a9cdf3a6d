"""Tables and figures of the papers, measured beside what was printed."""
