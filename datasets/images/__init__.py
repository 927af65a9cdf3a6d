"""Images in folders and archives, in a folder for each class."""
