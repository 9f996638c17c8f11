"""Reinforcement learning with a sandbox for every rollout: the cross-entropy method balances CartPole.

Each generation runs its policies at once, every one in a fresh sandbox, and collects each sandbox's directory of results
by one archive. The best policies decide what the next generation looks like. Nothing but Python is needed, inside and
outside; what every generation reached goes to stderr, with how many rollouts a second that were.

Prints:
    6 generations of 16 rollouts
    it learned: the mean return doubled at least, and the best policy balances to the end
    no sandbox is left
"""

import asyncio
import io
import json
import os
import random
import statistics
import sys
import tarfile
import time
from pathlib import Path

from osb import AsyncClient

IMAGE = os.environ.get("SANDBOX_IMAGE", "host")
ROLLOUTS = int(os.environ.get("ROLLOUTS", "16"))
GENERATIONS = int(os.environ.get("GENERATIONS", "6"))
KEPT_SHARE = 4
STEPS_MAX = 200
PROGRAM = (Path(__file__).parent / "rollout.py").read_bytes()
LABEL = {"example": "rl-training"}


async def rollout(client, weights, seed):
    """What one policy reached, in a sandbox of its own: made, used, collected from and deleted."""
    async with client.create(IMAGE, metadata=LABEL, resources={"cpu": "1", "memory": "256Mi"}) as sandbox:
        await sandbox.files.write("/opt/rollout.py", PROGRAM)
        words = ["python3", "/opt/rollout.py", ",".join(map(str, weights)), str(seed)]
        done = await sandbox.commands.run(words, timeout=60)
        if not done.is_success:
            raise RuntimeError(f"a rollout failed: {done.stderr}")
        async with await sandbox.files.download_archive("/result") as stream:
            packed = await stream.read()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        [file] = [entry for entry in archive if entry.name.endswith("episodes.json")]
        return statistics.mean(json.load(archive.extractfile(file))["returns"])


async def main():
    chance = random.Random(7)
    centre, spread = [0.0] * 4, [1.0] * 4
    means, best = [], 0.0
    async with AsyncClient() as client:
        for generation in range(GENERATIONS):
            policies = [[chance.gauss(*each) for each in zip(centre, spread)] for _ in range(ROLLOUTS)]
            begun = time.monotonic()
            # All or none: the first that fails ends the others, and each deletes its sandbox on its way out.
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(rollout(client, policy, generation)) for policy in policies]
            took = time.monotonic() - begun
            returns = [task.result() for task in tasks]
            means.append(statistics.mean(returns))
            best = max(best, *returns)
            print(f"generation {generation + 1}: mean return {means[-1]:.0f}, best {max(returns):.0f}, "
                  f"{ROLLOUTS / took:.1f} rollouts a second", file=sys.stderr)
            ranked = sorted(range(ROLLOUTS), key=lambda at: returns[at], reverse=True)
            kept = [policies[at] for at in ranked[:max(2, ROLLOUTS // KEPT_SHARE)]]
            centre = [statistics.mean(column) for column in zip(*kept)]
            spread = [statistics.pstdev(column) + 0.05 for column in zip(*kept)]
        left = [found.id async for found in client.list_all(metadata=LABEL)]
    print(f"{GENERATIONS} generations of {ROLLOUTS} rollouts")
    learned = means[-1] >= 2 * means[0] and best == STEPS_MAX
    print("it learned: the mean return doubled at least, and the best policy balances to the end" if learned
          else f"it did not learn: {means}, best {best}")
    print("no sandbox is left" if not left else f"left behind: {left}")


asyncio.run(main())
