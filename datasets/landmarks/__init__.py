"""Landmarks-User-160k: photographs of Google Landmarks v2, clients are authors."""
