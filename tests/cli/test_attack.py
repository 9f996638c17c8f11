"""`osb doctor --attack` as users have it: one binary, beside a server that runs."""

import json

# Of several classes, quick, and one with the image that shows the host's programs.
FEW = ("kernel.bpf_load", "filesystem.host_programs_fixed", "network.raw_socket", "images.archive_climbs")


def test_what_it_would_do_is_told_without_doing_it(osb):
    listed = json.loads(osb("doctor", "--attack", "--list", "--json").stdout)
    ids = [case["id"] for case in listed]
    assert len(ids) >= 150 and len(set(ids)) == len(ids)
    assert {case["class"] for case in listed} == {
        "kernel", "filesystem", "network", "resources", "neighbours", "control", "images"}
    for case in listed:
        assert case["attack"] and case["protections"] and case["consequence"], case
    text = osb("doctor", "--attack", "--list", "--only", "kernel.pid1").stdout
    assert "kernel.pid1_ptrace" in text and "stopped by undumpable" in text and "network." not in text


def test_two_reports_are_the_same(osb):
    words = ["doctor", "--attack", "--json", *(word for name in FEW for word in ("--only", name))]
    first, second = json.loads(osb(*words).stdout), json.loads(osb(*words).stdout)
    # What others do on this machine meanwhile is not the report's own.
    for report in (first, second):
        report.pop("changed_meanwhile")
    assert first == second
    assert [case["id"] for case in first["cases"]] == sorted(FEW, key=[c["id"] for c in first["cases"]].index)
    assert first["summary"] == {"cases": 4, "held": 4, "got_through": 0, "unclear": 0, "not_run": 0,
                                "host_is_as_before": True}
    assert first["machine"]["kernel"] and first["format"] == 1 and first["left_behind"] == []


def test_words_without_a_meaning_are_refused(osb):
    assert "--attack" in osb("doctor", "--only", "kernel", code=2).stderr
    assert osb("doctor", "--attack", "--only", "no-such-attack", code=2).stderr.count("no attack") == 1
