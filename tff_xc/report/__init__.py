"""What a run's files say: tables and curves."""
