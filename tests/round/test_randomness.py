"""Seeds are a function of (seed, round, client, purpose), and all differ."""

import itertools

import tensorflow as tf

from tff_xc.round import randomness


def seed_of(seed, round_number, client, purpose):
  in_round = randomness.round_seed(tf.constant([seed, 0]), round_number)
  return tuple(
    randomness.client_seed(in_round, client, purpose).numpy().tolist()
  )


def test_every_seed_round_client_and_purpose_has_a_stream_of_its_own():
  cases = list(
    itertools.product(range(3), range(4), range(4), randomness.Purpose)
  )
  seeds = {seed_of(*case) for case in cases}
  assert len(seeds) == len(cases)
  assert seed_of(*cases[5]) == seed_of(*cases[5])


def test_steps_have_seeds_of_their_own():
  seed = tf.constant([3, 4])
  seeds = [randomness.step_seed(seed, step).numpy() for step in range(5)]
  assert len({tuple(s) for s in seeds}) == 5
