"""What a sandbox may reach, by the published SDK and command line. That it reaches nothing else is shown by
crates/runtime/tests/escape."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BACKEND, IMAGE, done, only_1_1
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule

OSB = Path(sys.executable).with_name("osb")
pytestmark = pytest.mark.skipif(
    BACKEND != "embedded", reason="rules are enforced by the embedded runtime alone"
)

# Asks the sandbox's own nameserver; says the code of the answer (RFC 1035 4.1.1).
ASK = """
import socket, struct, sys
server = next(l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver"))
labels = b"".join(bytes([len(p)]) + p.encode() for p in sys.argv[1].split(".")) + b"\\0"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(60)
    s.connect((server, 53))
    s.send(b"\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0" + labels + struct.pack(">HH", 1, 1))
    print(s.recv(65536)[3] & 15)
"""
REFUSED_NAME = "3"


def rules(policy):
    return [(rule.action, rule.target) for rule in policy.egress or []]


async def code_of(sandbox, name):
    ran = await done(sandbox.commands.run(f"python3 -c '{ASK}' {name}"))
    return ran.logs.stdout[0].text.strip()


@only_1_1
async def test_a_policy_is_read_patched_and_reduced(client):
    sandbox = await client.create(network_policy=NetworkPolicy(
        default_action="deny", egress=[NetworkRule(action="allow", target="a.example")]
    ))
    policy = await done(sandbox.get_egress_policy())
    assert (policy.default_action, rules(policy)) == ("deny", [("allow", "a.example")])
    await done(sandbox.patch_egress_rules([
        NetworkRule(action="deny", target="a.example"),
        NetworkRule(action="allow", target="a.example"),
        NetworkRule(action="allow", target="*.b.example"),
    ]))
    policy = await done(sandbox.get_egress_policy())
    assert rules(policy) == [("deny", "a.example"), ("allow", "*.b.example")]
    await done(sandbox.delete_egress_rules(["A.example", "unknown.example"]))
    assert rules(await done(sandbox.get_egress_policy())) == [("allow", "*.b.example")]
    assert await code_of(sandbox, "denied.example") == REFUSED_NAME


@only_1_1
async def test_rules_can_come_later(client):
    for first in (None, NetworkPolicy(default_action="deny", egress=[])):
        sandbox = await client.create(network_policy=first)
        policy = await done(sandbox.get_egress_policy())
        assert (policy.default_action, rules(policy)) == ("deny" if first else "allow", [])
        await done(sandbox.patch_egress_rules([NetworkRule(action="deny", target="denied.example")]))
        assert rules(await done(sandbox.get_egress_policy())) == [("deny", "denied.example")]
        assert await code_of(sandbox, "denied.example") == REFUSED_NAME


@only_1_1
async def test_what_is_no_rule_is_refused_and_changes_nothing(client):
    sandbox = await client.create(network_policy=NetworkPolicy(
        default_action="deny", egress=[NetworkRule(action="allow", target="a.example")]
    ))
    for target in ("https://a.example", "a.example:443", "*", "a.example.", "10.0.0.0/33"):
        with pytest.raises(SandboxApiException) as refused:
            await done(sandbox.patch_egress_rules([NetworkRule(action="allow", target=target)]))
        assert refused.value.status_code == 400, target
    assert rules(await done(sandbox.get_egress_policy())) == [("allow", "a.example")]


@pytest.mark.skipif(not OSB.exists(), reason="the command line is published for 1.1.1 only")
def test_the_published_command_line(server, tmp_path):
    def osb(*words):
        result = subprocess.run(
            [OSB, *words], env={**server.environment, "HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=120,
        )
        assert result.returncode == 0, f"osb {' '.join(words)}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"defaultAction": "deny", "egress": [{"action": "allow", "target": "a.example"}]}))
    made = json.loads(osb("sandbox", "create", "-i", IMAGE, "--network-policy-file", str(policy),
                          "--resource", "cpu=1", "--resource", "memory=512Mi", "-o", "json"))["id"]
    try:
        osb("egress", "patch", made, "--rule", "allow=b.example", "--rule", "deny=a.example")
        shown = json.loads(osb("egress", "get", made, "-o", "json"))
        assert [rule["target"] for rule in shown["egress"]] == ["b.example", "a.example"]
        assert [rule["action"] for rule in shown["egress"]] == ["allow", "deny"]
    finally:
        osb("sandbox", "kill", made)
