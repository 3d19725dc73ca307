"""Certificates of clusters, made as `docs/cluster.md` says."""

import subprocess

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*words, cwd):
    subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True)


def authority(folder, name):
    """NAME.pem can sign certificates with NAME.key."""
    openssl("req", "-x509", *KEY, "-days", "30", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem", cwd=folder)


def sign(folder, name, names, by="ca"):
    """NAME.pem is a certificate for these names."""
    openssl("req", *KEY, "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}", "-keyout", f"{name}.key", "-out", "request", cwd=folder)
    openssl("x509", "-req", "-in", "request", "-copy_extensions", "copy", "-days", "30", "-CA", f"{by}.pem", "-CAkey", f"{by}.key",
            "-CAcreateserial", "-out", f"{name}.pem", cwd=folder)  # fmt: skip


def of_nodes(folder):
    """The certificates of nodes, of somebody else and of etcd, by the same authority; and that of a node by another one."""
    authority(folder, "ca")
    sign(folder, "node", "DNS:savanna-node")
    sign(folder, "other", "DNS:other.example")
    sign(folder, "etcd", "IP:127.0.0.1")
    authority(folder, "foreign")
    sign(folder, "foreign-node", "DNS:savanna-node", by="foreign")
    return folder


def settings(folder, name="node"):
    """The settings of a node with such a certificate."""
    files = {"cert": f"{name}.pem", "key": f"{name}.key", "ca": "ca.pem"}
    return [f"cluster.tls_{setting}={folder / file}" for setting, file in files.items()]
