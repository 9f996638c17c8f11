"""Starts every part of a cluster, waits until its node is ready, and runs a command beside it. The inner half of
`run`: it expects namespaces of its own, and leaves it to their end to stop what it started.

Nothing of the machine is changed: what a kubelet would write outside of the namespaces is covered by mounts first.
"""

import json
import os
import platform
import shlex
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import image

HOME = Path(os.environ["OSB_TEST_CLUSTER"])
GROUPS = os.environ["OSB_TEST_GROUPS"]
API = "https://127.0.0.1:16443"
NODE, NODE_IP, BRIDGE = "osb-node", "10.244.0.1", "osbk8s0"
CNI = "/usr/lib/cni"
# A busy machine takes half a minute for what an idle one has done in five seconds.
READY_SECONDS = 240
# What a kubelet sets (kubernetes pkg/kubelet/cm/container_manager_linux.go) and finds set already.
SYSCTLS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
           "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}
# Whose writes go with the namespaces.
COVERED = ["/var/lib", "/var/log", "/run", "/usr/libexec", "/tmp"]
CONTROLLERS = ["cpu", "cpuacct", "cpuset", "memory", "pids", "systemd", "blkio", "devices", "freezer", "hugetlb",
               "net_cls", "net_prio", "perf_event"]
TOKENS = {"admin": "admin,admin,system:masters", "controllers": "system:kube-controller-manager,kcm",
          "scheduler": "system:kube-scheduler,scheduler", "node": f"system:node:{NODE},node,system:nodes"}
NAMES = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"]

# An API server that becomes ready tells nobody.
AGAIN = {"apiserver": f"curl -sk --retry 120 --retry-delay 1 --retry-all-errors --fail -o /dev/null {API}/readyz"}

started = {}


def run(*command, **options):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)


def start(name, *command):
    log = open(HOME / f"{name}.log", "ab")
    started[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    (HOME / f"{name}.pid").write_text(str(started[name].pid))
    # For tests that have killed it.
    again = HOME / f"start-{name}"
    again.write_text(f"#!/bin/bash\nset -e\nsetsid {shlex.join(command)} </dev/null >>{HOME}/{name}.log 2>&1 &\n"
                     f"echo $! >{HOME}/{name}.pid\n{AGAIN.get(name, '')}\n")
    again.chmod(0o755)


def cover():
    """Puts mounts of this namespace over what is written outside of it."""
    run("mount", "--make-rprivate", "/")
    for path in COVERED:
        # What a caller's program and files lie under must stay visible, which an overlay sees to.
        upper, work = (HOME / "covered" / kind / path.strip("/").replace("/", "-") for kind in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        mode = os.stat(path).st_mode & 0o7777
        upper.chmod(mode)
        run("mount", "-t", "overlay", "osb", "-o", f"lowerdir={path},upperdir={upper},workdir={work}", path)
    for name, value in SYSCTLS.items():
        setting = HOME / ("sysctl-" + name.replace("/", "-"))
        setting.write_text(value + "\n")
        if Path("/proc/sys", name).exists():
            run("mount", "--bind", str(setting), f"/proc/sys/{name}")


def keys():
    """The certificate authority, the API server's certificate and the key for service accounts."""
    directory = HOME / "pki"
    directory.mkdir()
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    run("openssl", "req", "-x509", *curve, "-subj", "/CN=osb-test", "-keyout", "ca.key", "-out", "ca.crt",
        cwd=directory, stderr=subprocess.DEVNULL)
    run("openssl", "req", "-x509", *curve, "-subj", "/CN=kube-apiserver", "-CA", "ca.crt", "-CAkey", "ca.key",
        "-addext", "subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc",
        "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "api.key", "-out", "api.crt",
        cwd=directory, stderr=subprocess.DEVNULL)
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "accounts.key", cwd=directory)
    rows = [f'{name}-token,{user.split(",")[0]},{user.split(",")[1]}'
            + (f',"{user.split(",")[2]}"' if user.count(",") > 1 else "") for name, user in TOKENS.items()]
    (directory / "tokens.csv").write_text("\n".join(rows) + "\n")
    for name in TOKENS:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": API, "certificate-authority": str(directory / "ca.crt")}}],
            "users": [{"name": "test", "user": {"token": f"{name}-token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
        }
        (directory / f"{name}.kubeconfig").write_text(json.dumps(config))


def network():
    run("ip", "link", "set", "lo", "up")
    # Without an address of its own a bridge takes its ports', which changes as pods come and go.
    run("ip", "link", "add", BRIDGE, "address", "02:00:0a:f4:00:01", "type", "bridge")
    run("ip", "address", "add", f"{NODE_IP}/22", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def containerd():
    home = HOME / "containerd"
    (home / "cni").mkdir(parents=True)
    (home / "config.toml").write_text(f"""
version = 2
root = "{home}/root"
state = "{home}/state"
[grpc]
  address = "{home}/socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/osb-test/pause:1"
  stream_server_address = "127.0.0.1"
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  # Below its own value only CAP_SYS_RESOURCE may go, which a container that runs tests may lack.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{home}/runc"
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI}"
    conf_dir = "{home}/cni"
    max_conf_num = 1
""")
    (home / "cni" / "10-osb.conflist").write_text(json.dumps({
        "cniVersion": "1.0.0", "name": "osb", "plugins": [{
            "type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": False, "hairpinMode": True,
            "ipam": {"type": "host-local", "dataDir": str(home / "addresses"),
                     "ranges": [[{"subnet": "10.244.0.0/22"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }],
    }))
    start("containerd", "containerd", "--config", str(home / "config.toml"), "--log-level", "warn")


def images():
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    busybox = subprocess.run(["which", "busybox"], check=True, capture_output=True, text=True).stdout.strip()
    wanted = [("pause", {"/busybox": busybox}, ["/busybox", "sleep", "2147483647"]),
              ("static", {"/sleep": busybox}, ["/sleep", "2147483647"]),
              ("execd", {"/execd": os.environ["OSB_TEST_EXECD"]}, ["/execd"]),
              ("debian", None, ["sleep", "infinity"])]
    for name, files, entrypoint in wanted:
        layer = HOME / "layer.tar" if files else Path(os.environ["OSB_TEST_TREE"])
        if files:
            image.layer(layer, files)
        archive = HOME / "image.tar"
        image.archive(archive, f"docker.io/osb-test/{name}:1", layer, entrypoint, machine)
        run("ctr", "--connect-timeout", "60s", "-a", str(HOME / "containerd/socket"), "-n", "k8s.io", "images",
            "import", str(archive))
        archive.unlink()


def control_plane():
    pki = HOME / "pki"
    etcd = "http://127.0.0.1:12379"
    start("etcd", str(HOME / "bin/etcd"), "--data-dir", str(HOME / "etcd"), "--listen-client-urls", etcd,
          "--advertise-client-urls", etcd, "--listen-peer-urls", "http://127.0.0.1:12380", "--log-level", "warn",
          # What a killed machine loses is not what these tests are about.
          "--unsafe-no-fsync")
    start("apiserver", str(HOME / "bin/kube-apiserver"), "--etcd-servers", etcd, "--bind-address", "127.0.0.1",
          "--advertise-address", NODE_IP, "--secure-port", "16443", "--endpoint-reconciler-type", "none",
          "--tls-cert-file", f"{pki}/api.crt", "--tls-private-key-file", f"{pki}/api.key",
          "--client-ca-file", f"{pki}/ca.crt", "--token-auth-file", f"{pki}/tokens.csv",
          "--service-account-issuer", "https://kubernetes.default.svc",
          "--service-account-key-file", f"{pki}/accounts.key",
          "--service-account-signing-key-file", f"{pki}/accounts.key", "--service-cluster-ip-range", "10.96.0.0/24",
          "--authorization-mode", "Node,RBAC", "--cert-dir", str(HOME / "apiserver"), "--profiling=false",
          "--kubelet-preferred-address-types", "InternalIP")


def controllers():
    pki = HOME / "pki"
    for name, program, port, extra in (
        ("controllers", "kube-controller-manager", "20257",
         ["--flex-volume-plugin-dir", str(HOME / "flex"), "--service-account-private-key-file", f"{pki}/accounts.key",
          "--root-ca-file", f"{pki}/ca.crt", "--use-service-account-credentials=true",
          # Provides volumes from directories of /tmp, as Kubernetes' own tests have it.
          "--enable-hostpath-provisioner=true"]),
        ("scheduler", "kube-scheduler", "20259", []),
    ):
        config = f"{pki}/{name}.kubeconfig"
        start(name, str(HOME / "bin" / program), "--kubeconfig", config, "--authentication-kubeconfig", config,
              "--authorization-kubeconfig", config, "--bind-address", "127.0.0.1", "--secure-port", port,
              "--cert-dir", str(HOME / name), "--leader-elect=false", "--kube-api-qps", "300",
              "--kube-api-burst", "600", *extra)


def kubelet():
    for controller in CONTROLLERS:
        root = Path("/sys/fs/cgroup", controller)
        # Two names for one hierarchy are one directory.
        if not root.is_dir():
            continue
        group = root / GROUPS
        group.mkdir(exist_ok=True)
        if controller == "cpuset":
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((root / name).read_text())
    home = HOME / "kubelet"
    home.mkdir()
    (home / "config.yaml").write_text(json.dumps({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": NODE_IP, "port": 20250, "healthzPort": 20248, "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{HOME}/containerd/socket",
        "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{GROUPS}", "cgroupsPerQOS": True, "enforceNodeAllocatable": [],
        "failCgroupV1": False, "failSwapOn": False, "oomScoreAdj": 0, "maxOpenFiles": 20000, "maxPods": 500,
        "makeIPTablesUtilChains": False, "localStorageCapacityIsolation": False, "serializeImagePulls": False,
        "registryPullQPS": 0, "eventRecordQPS": 0, "kubeAPIQPS": 200, "kubeAPIBurst": 400, "syncFrequency": "30s",
        "imageGCHighThresholdPercent": 100, "imageMinimumGCAge": "24h",
        "evictionHard": {name: "0%" for name in ("memory.available", "nodefs.available", "nodefs.inodesFree",
                                                 "imagefs.available", "imagefs.inodesFree")},
        "podLogsDir": str(home / "logs"), "volumePluginDir": str(home / "plugins"),
    }))
    start("kubelet", str(HOME / "bin/kubelet"), "--config", str(home / "config.yaml"),
          "--kubeconfig", str(HOME / "pki/node.kubeconfig"), "--hostname-override", NODE, "--node-ip", NODE_IP,
          "--root-dir", str(home / "root"), "--cert-dir", str(home / "pki"))


def ask(path, seconds, body=None):
    request = urllib.request.Request(API + path, headers={"Authorization": "Bearer admin-token"})
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    trust = ssl.create_default_context(cafile=str(HOME / "pki/ca.crt"))
    return urllib.request.urlopen(request, timeout=seconds, context=trust)


def until_serving(deadline):
    """An API server that becomes ready tells nobody, so it is asked, ever less often."""
    wait = 0.05
    while True:
        dead = [name for name, process in started.items() if process.poll() is not None]
        if dead:
            sys.exit(f"tests/kubernetes: {', '.join(dead)} ended:\n{last_words(dead)}")
        try:
            with ask("/readyz", 5):
                return
        except (OSError, urllib.error.URLError) as error:
            if time.monotonic() > deadline:
                sys.exit(f"tests/kubernetes: the API server is not ready: {error}\n{last_words(started)}")
        time.sleep(wait)
        wait = min(wait * 1.5, 1)


def until_seen(path, is_wanted, deadline):
    """Waits until a watch shows an object as it is wanted."""
    with ask(f"{path}?watch=1", max(1, deadline - time.monotonic())) as events:
        for line in events:
            if is_wanted(json.loads(line)["object"]):
                return
    sys.exit(f"tests/kubernetes: the watch of {path} ended:\n{last_words(started)}")


def is_ready(node):
    conditions = node.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def last_words(names):
    tails = []
    for name in names:
        lines = (HOME / f"{name}.log").read_text(errors="replace").splitlines()[-12:]
        tails.append("\n".join([f"== {name}", *lines]))
    return "\n".join(tails)


def main(command):
    begun = time.monotonic()
    deadline = begun + READY_SECONDS
    cover()
    (HOME / "bin").mkdir()
    for name in NAMES:
        (HOME / "bin" / name).symlink_to(os.environ["OSB_TEST_PROGRAM"])
    keys()
    network()
    control_plane()
    containerd()
    images()
    until_serving(deadline)
    controllers()
    kubelet()
    with ask("/apis/storage.k8s.io/v1/storageclasses", 30, {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "kubernetes.io/host-path",
        "metadata": {"name": "test", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    }):
        pass
    try:
        until_seen("/api/v1/nodes", is_ready, deadline)
        until_seen("/api/v1/namespaces/default/serviceaccounts", lambda one: one["metadata"]["name"] == "default", deadline)
    except TimeoutError:
        sys.exit(f"tests/kubernetes: the node is not ready within {READY_SECONDS} s:\n{last_words(started)}")
    print(f"tests/kubernetes: a cluster is ready after {time.monotonic() - begun:.1f} s", file=sys.stderr)
    environment = {
        **os.environ, "KUBECONFIG": str(HOME / "pki/admin.kubeconfig"), "PATH": f"{HOME}/bin:{os.environ['PATH']}",
        "OSB_TEST_IMAGE": "docker.io/osb-test/debian:1", "OSB_TEST_STATIC": "docker.io/osb-test/static:1",
        "OSB_TEST_EXECD_IMAGE": "docker.io/osb-test/execd:1",
    }
    code = subprocess.run(command, env=environment, check=False).returncode
    dead = [name for name, process in started.items() if process.poll() is not None]
    if code:
        print(f"tests/kubernetes: ended meanwhile: {dead}\n{last_words(started)}", file=sys.stderr)
    return code


sys.exit(main(sys.argv[1:]))
