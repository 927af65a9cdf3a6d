"""Published tables as data: a CSV of numbers and a module of words for each paper.

PAPER.csv has a line for each result of each experiment:
  table: such as table1; figures that draw a table's runs have no lines of their own;
  scale: paper, or small for the same experiment in minutes;
  row: its number within the table and scale;
  task, algorithm; changes: settings that differ from these defaults, NAME=VALUE;...;
    of small rows those that differ from the form's `shared` ones;
  metric, at: see `names`; published, std, bound: as printed, '>' for '>200'; empty:
    not known here.
claims.csv has what a paper's text says of a table besides its numbers, see `table.Claim`;
scale: of which rows, paper or small; empty: of both.
"""
