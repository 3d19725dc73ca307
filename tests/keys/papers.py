"""Certificates for tests of encrypted connections."""

import subprocess

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*words, cwd):
    subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True)


def sign(folder):
    """Two authorities; each has signed a server's and a client's certificate."""
    (folder / "name").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    for authority in ("ours", "foreign"):
        openssl("req", "-x509", *KEY, "-days", "30", "-subj", f"/CN={authority}",
                "-keyout", f"{authority}.key", "-out", f"{authority}.pem", cwd=folder)  # fmt: skip
        for who in ("server", "client"):
            openssl("req", *KEY, "-subj", "/CN=localhost", "-keyout", f"{authority}-{who}.key", "-out", "request", cwd=folder)
            openssl("x509", "-req", "-in", "request", "-days", "30", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                    "-CAcreateserial", "-extfile", "name", "-out", f"{authority}-{who}.pem", cwd=folder)  # fmt: skip
    return folder
