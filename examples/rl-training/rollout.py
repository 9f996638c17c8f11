"""One rollout, inside a sandbox: episodes of CartPole with a linear policy, written to /result.

    python3 rollout.py WEIGHTS SEED          (four numbers with commas between them)

The equations are those of Barto, Sutton and Anderson (1983), with the constants of Gymnasium's CartPole.
"""

import json
import math
import os
import random
import sys

EPISODES = 3
STEPS_MAX = 200
GRAVITY, CART, POLE, HALF_LENGTH, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02


def step(state, push):
    x, speed, angle, turn = state
    cosine, sine = math.cos(angle), math.sin(angle)
    pressed = (push + POLE * HALF_LENGTH * turn**2 * sine) / (CART + POLE)
    turning = (GRAVITY * sine - cosine * pressed) / (HALF_LENGTH * (4 / 3 - POLE * cosine**2 / (CART + POLE)))
    moving = pressed - POLE * HALF_LENGTH * turning * cosine / (CART + POLE)
    return x + TICK * speed, speed + TICK * moving, angle + TICK * turn, turn + TICK * turning


def episode(weights, chance):
    state = [chance.uniform(-0.05, 0.05) for _ in range(4)]
    for steps in range(STEPS_MAX):
        push = FORCE if sum(weight * part for weight, part in zip(weights, state)) > 0 else -FORCE
        state = step(state, push)
        if abs(state[0]) > 2.4 or abs(state[2]) > 12 * math.pi / 180:
            return steps + 1
    return STEPS_MAX


weights, chance = [float(word) for word in sys.argv[1].split(",")], random.Random(int(sys.argv[2]))
returns = [episode(weights, chance) for _ in range(EPISODES)]
os.makedirs("/result", exist_ok=True)
with open("/result/episodes.json", "w") as file:
    json.dump({"weights": weights, "returns": returns}, file)
