"""Writes tables in every form that users have."""


def write(path, frame):
  """Writes a frame of pandas in the form that the suffix names. Returns the path."""
  name = path.name.lower()
  if '.parquet' in name:
    frame.to_parquet(path)
  elif '.jsonl' in name or '.ndjson' in name:
    frame.to_json(path, orient='records', lines=True, force_ascii=False)
  else:
    frame.to_csv(path, index=False, sep='\t' if '.tsv' in name else ',')
  return path
