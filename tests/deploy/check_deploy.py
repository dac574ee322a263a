#!/usr/bin/env python3
"""What deploy/ promises without being run by any other test: units, manifests, Dockerfiles, scripts, Slurm, packages.

usage: check_deploy.py BIN_DIR. Every flag that a file passes must be one that the program's --help explains, every port
and path of a probe must exist, every package of the runtime list must be needed and none may be missing.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

try:
    import yaml
except ImportError:  # another interpreter comes first on the PATH: Debian's has the package
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROGRAMS = ["helios-launch", "helios-coordinator", "helios-worker", "helios-bench"]
BASE_PACKAGES = {"libc6", "libstdc++6", "libgcc-s1"}
PROBED_PATHS = {"/livez", "/readyz"}

problems = []


def complain(where, what):
    problems.append(f"{where}: {what}")


def known_flags(bin_dir):
    flags = {}
    for program in PROGRAMS:
        text = subprocess.run([bin_dir / program, "--help"], capture_output=True, text=True, check=True).stdout
        flags[program] = set(re.findall(r"--[a-z][a-z0-9-]+", text))
    return flags


def check_words(where, program, words, flags):
    for word in words:
        if word.startswith("--") and word.split("=")[0] not in flags[program]:
            complain(where, f"{program} does not know {word}")


def check_manifest(path, flags):
    for document in yaml.safe_load_all(path.read_text()):
        stack = [document]
        while stack:
            node = stack.pop()
            if isinstance(node, dict):
                if "image" in node:
                    check_container(f"{path.name} {node['name']}", node, flags)
                stack.extend(node.values())
            elif isinstance(node, list):
                stack.extend(node)
        selector = document.get("spec", {}).get("selector", {})
        labels = yaml.safe_dump(document if document["kind"] != "Service" else list(yaml.safe_load_all(path.read_text())))
        for key, value in (selector.get("matchLabels", selector) or {}).items():
            if f"{key}: {value}" not in labels:
                complain(path.name, f"{document['kind']} selects {key}={value}, which nothing carries")


def check_container(where, container, flags):
    program = container.get("command", ["helios-launch"])[0]
    check_words(where, program, container.get("args", []), flags)
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container.get(probe, {}).get("httpGet")
        if get and get["port"] not in ports:
            complain(where, f"{probe} asks port {get['port']}, which the container does not declare")
        if get and get["path"] not in PROBED_PATHS:
            complain(where, f"{probe} asks {get['path']}")
    if program == "helios-worker" and "preStop" not in container.get("lifecycle", {}):
        complain(where, "would end at SIGTERM, before its coordinator has drained")
    volumes = {mount["name"] for mount in container.get("volumeMounts", [])}
    if "model" not in volumes:
        complain(where, "has no model mounted")


def check_unit(path, bin_dir, flags, scratch):
    text = path.read_text()
    for program, rest in re.findall(r"^ExecStart=/usr/local/bin/(\S+) (.*)$", text, re.MULTILINE):
        check_words(path.name, program, rest.split(), flags)
    copy = scratch / path.name
    copy.write_text(text.replace("/usr/local/bin/", f"{bin_dir}/"))
    verified = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    for line in verified.stderr.splitlines():
        if path.name.replace("@", "@i") in line or path.name in line:
            complain(path.name, line)


def check_dockerfile(path, bin_dir, flags):
    text = path.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            for source in words[1:-1]:
                if source != "." and not list(ROOT.glob(source)):
                    complain(path.name, f"copies {source}, which is not there")
        if words[:1] == ["USER"] and not words[1].isdigit():
            complain(path.name, f"runs as {words[1]}: Kubernetes' runAsNonRoot takes numbers alone")
        if words[:1] == ["ENTRYPOINT"]:
            command = re.findall(r'"([^"]*)"', line)
            check_words(path.name, command[0], command, flags)
    for target in re.search(r"--target((?: +[a-z_-]+)+)", text).group(1).split():
        if target != "helios_cuda" and not (bin_dir / target).exists():
            complain(path.name, f"builds {target}, which is no program")


def check_scripts():
    scripts = sorted(DEPLOY.rglob("*.sh")) + sorted(DEPLOY.rglob("*.sbatch")) + [ROOT / ".ci" / "run"]
    found = subprocess.run(["shellcheck", "-S", "warning", *scripts], capture_output=True, text=True)
    if found.returncode:
        complain("shellcheck", found.stdout)


def check_gpu_check():
    """Without a driver: one line that says so, and the status of a machine that lacks something."""
    told = subprocess.run([DEPLOY / "gpu_check.sh"], capture_output=True, text=True,
                          env={**os.environ, "HELIOS_GPU_DRIVER": "/dev/no-such-driver"})
    line = "gpu_check.sh: no NVIDIA driver here: /dev/no-such-driver does not exist\n"
    if (told.returncode, told.stdout, told.stderr) != (2, "", line):
        complain("gpu_check.sh", f"without a driver: status {told.returncode}, {told.stdout + told.stderr!r}")


# One node's: every task its number, and the highest status of all.
SRUN = """#!/bin/bash
shift
for ((task = 0; task < SLURM_NTASKS; ++task)); do
  SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_STEP_ID=0 "$@" &
  tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || status=$((status > $? ? status : $?)); done
exit $((status))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def check_slurm_job(bin_dir, scratch):
    """The batch script with a stand-in for srun: serves, and drains when Slurm signals it, which is the shell alone."""
    for name, text in {"scontrol": "#!/bin/sh\necho 127.0.0.1\n", "srun": SRUN}.items():
        (scratch / name).write_text(text)
        (scratch / name).chmod(0o755)
    port, log = free_port(), scratch / "job.log"
    settings = {"PATH": f"{scratch}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "node", "SLURM_NTASKS": "2",
                "HELIOS_BIN": str(bin_dir), "HELIOS_PORT": port, "HELIOS_RANK_PORT": free_port()}
    with open(log, "w") as out:
        job = subprocess.Popen(["bash", DEPLOY / "slurm" / "helios.sbatch", DEPLOY / "demo"], stdout=out, stderr=out,
                               env={**os.environ, **settings}, start_new_session=True)
    try:
        deadline = time.monotonic() + 40
        while subprocess.run(["curl", "-sf", f"http://127.0.0.1:{port}/readyz"], capture_output=True).returncode:
            if job.poll() is not None or time.monotonic() > deadline:
                return complain("helios.sbatch", "never ready: " + log.read_text()[-500:])
            time.sleep(0.1)
        job.send_signal(signal.SIGTERM)
        if (status := job.wait(30)) != 0 or "second_signal=0" not in log.read_text():
            complain("helios.sbatch", f"status {status} after SIGTERM: " + log.read_text()[-500:])
    except subprocess.TimeoutExpired:
        complain("helios.sbatch", "does not end after SIGTERM")
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


def owner_of(library_path):
    """The Debian package of a file that ldd names; dpkg may know it with or without the /usr of a merged system."""
    for path in dict.fromkeys([library_path, "/usr" + library_path, os.path.realpath(library_path)]):
        found = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return None


def check_runtime_packages(bin_dir):
    listed = {line for line in (DEPLOY / "packages-runtime.txt").read_text().split("\n") if line and line[0] != "#"}
    needed = {"curl"}  # the health check
    for program in PROGRAMS:
        dynamic = subprocess.run(["readelf", "-d", bin_dir / program], capture_output=True, text=True, check=True).stdout
        direct = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        loaded = subprocess.run(["ldd", bin_dir / program], capture_output=True, text=True, check=True).stdout
        for library, path in re.findall(r"(\S+) => (/\S+)", loaded):
            package = owner_of(path) if library in direct else None
            if package and package not in BASE_PACKAGES:
                needed.add(package)
                if package not in listed:
                    complain("packages-runtime.txt", f"{program} needs {library}, of {package}")
    for package in sorted(listed - needed):
        complain("packages-runtime.txt", f"no program needs {package}")


def main():
    bin_dir = pathlib.Path(sys.argv[1]).resolve()
    flags = known_flags(bin_dir)
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        check_manifest(path, flags)
    if shutil.which("systemd-analyze"):
        with tempfile.TemporaryDirectory() as scratch:
            for path in sorted((DEPLOY / "systemd").glob("*.service")):
                check_unit(path, bin_dir, flags, pathlib.Path(scratch))
    else:
        print("SKIPPED: the units, because there is no systemd-analyze here")
    for path in sorted((DEPLOY / "docker").glob("Dockerfile.*")):
        check_dockerfile(path, bin_dir, flags)
    check_scripts()
    check_gpu_check()
    check_runtime_packages(bin_dir)
    with tempfile.TemporaryDirectory() as scratch:
        check_slurm_job(bin_dir, pathlib.Path(scratch))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
