"""Settings of Django's own tests: two databases of the server whose port is in PORT."""

import os


def database(name):
    return {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": os.environ["PORT"], "USER": "postgres", "NAME": name}


DATABASES = {"default": database("first"), "other": database("second")}
SECRET_KEY = "of tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
