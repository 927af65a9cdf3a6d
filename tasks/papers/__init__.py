"""Published tables as data: each paper has a CSV of numbers and a module of texts.

PAPER.csv has a line for each result of each experiment, with these columns:
  table: such as table1. Figures that draw a table's runs have no lines;
  scale: paper, or small for the same experiment in minutes;
  row: the number of the experiment within the table and scale;
  task, algorithm;
  changes: settings that differ from the defaults of the task and the algorithm, written as
    NAME=VALUE;NAME=VALUE. A small row also has the `shared` settings of its table;
  metric, at: see `names`;
  published, std, bound: the printed number, with bound '>' for '>200'. An empty cell means
    that we do not know the number.
claims.csv has the statements that a paper's text adds to a table, see `table.Claim`. Its column
scale names the scale of the rows to which a statement applies; an empty cell means all scales.
"""
