"""Measurements: ranking metrics, bytes on the wire, and reports of runs."""
