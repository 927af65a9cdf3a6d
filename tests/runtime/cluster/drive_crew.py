"""A driver whose crew shares a value before and after a line on stdin.

python -m tests.runtime.cluster.drive_crew FOLDER
"""

import sys

import numpy as np

from launch import app
from tff_xc.runtime.cluster import ray_crew


def main(arguments) -> None:
  [folder] = arguments
  crew = ray_crew.RayCrew(600.0, folder)
  crew.share(np.zeros(10**6))
  print('shared', flush=True)
  sys.stdin.readline()
  crew.share(np.zeros(10**6))
  print('shared', flush=True)


if __name__ == '__main__':
  app.run(main, __doc__)
