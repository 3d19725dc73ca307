"""What a site of Django does, run as a program: migrations, the admin, and queries of its ORM, against the database that PGHOST and the like name.

    django_shop.py FOLDER first|later

It prints what it sees, to be compared between servers."""

import io
import os
import pathlib
import sys

import django
from django.conf import settings

ROOT = pathlib.Path(sys.argv[1])
APP = ROOT / "shop"
MODELS = '''
from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=50, unique=True)
    born = models.DateField(null=True, blank=True)
    tags = ArrayField(models.CharField(max_length=20), default=list)


class Book(models.Model):
    id = models.BigAutoField(primary_key=True)
    title = models.CharField(max_length=100, db_index=True, db_comment="as it is printed")
    slug = models.SlugField()
    price = models.DecimalField(max_digits=8, decimal_places=2, default=1)
    double = models.GeneratedField(expression=models.F("price") * 2, output_field=models.DecimalField(max_digits=9, decimal_places=2), db_persist=True)
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    extra = models.JSONField(default=dict)
    known = models.DurationField(null=True)
    key = models.UUIDField(null=True)
    raw = models.BinaryField(null=True)
    printed = models.DateTimeField(auto_now_add=True)
    owner = models.ForeignKey(User, null=True, on_delete=models.SET_NULL)
    readers = models.ManyToManyField(User, related_name="read")

    class Meta:
        db_table_comment = "all that is sold"
        indexes = [models.Index(fields=["author", "-price"]), models.Index(models.functions.Lower("title"), name="lower_title")]
        constraints = [
            models.CheckConstraint(condition=models.Q(price__gte=0), name="price_not_negative"),
            models.UniqueConstraint(fields=["author", "title"], name="once", condition=models.Q(price__gt=0)),
        ]
'''
ADMIN = '''
from django.contrib import admin
from .models import Author, Book
admin.site.register(Author)


@admin.register(Book)
class BookAdmin(admin.ModelAdmin):
    list_display = ["title", "price", "author"]
    list_filter = ["author", "printed"]
    search_fields = ["title", "author__name"]
    date_hierarchy = "printed"
'''
URLS = "from django.contrib import admin\nfrom django.urls import path\nurlpatterns = [path('admin/', admin.site.urls)]\n"


def write():
    APP.mkdir()
    for name, text in (("__init__", ""), ("models", MODELS), ("admin", ADMIN), ("urls", URLS)):
        (APP / f"{name}.py").write_text(text)


def configure():
    if not APP.exists():
        write()
    sys.path.insert(0, str(ROOT))
    middleware = ["sessions.middleware.SessionMiddleware", "auth.middleware.AuthenticationMiddleware", "messages.middleware.MessageMiddleware"]
    settings.configure(
        SECRET_KEY="none", ALLOWED_HOSTS=["*"], ROOT_URLCONF="shop.urls", STATIC_URL="/static/", USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        INSTALLED_APPS=[f"django.contrib.{app}" for app in ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles", "postgres", "sites")] + ["shop"],
        MIDDLEWARE=[f"django.contrib.{name}" for name in middleware], SITE_ID=1,
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {"context_processors": [
            "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages"]}}],
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"],
                               "USER": os.environ["PGUSER"], "NAME": os.environ["PGDATABASE"]}},
    )
    django.setup()


def call(*words):
    from django.core.management import call_command
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=out)
    return out.getvalue()


def migrate():
    call("makemigrations", "shop")
    yield call("sqlmigrate", "shop", "0001")
    call("migrate")
    yield call("showmigrations")
    models = APP / "models.py"
    # A second round: what a site does when its models change.
    models.write_text(models.read_text().replace("slug = models.SlugField()", "slug = models.SlugField(null=True)\n    pages = models.IntegerField(default=3)"))


def later():
    """The second migration, in a process that has the new models."""
    call("makemigrations", "shop")
    call("migrate")
    yield call("showmigrations", "shop")
    yield call("migrate", "shop", "0001")
    yield call("migrate", "shop")
    yield "\n".join(line for line in call("inspectdb").splitlines() if "http" not in line)


def queries():
    import datetime
    import decimal
    import uuid

    from django.contrib.auth.models import User
    from django.db import IntegrityError, connection, models, transaction
    from django.db.models import functions
    from shop.models import Author, Book

    anna = Author.objects.create(name="Anna", born=datetime.date(1990, 2, 28), tags=["a", "b c"])
    berta, created = Author.objects.get_or_create(name="Berta")
    yield created, Author.objects.update_or_create(name="Berta", defaults={"tags": ["x"]})[1]
    Book.objects.bulk_create(
        Book(title=f"book {n}", slug=f"b{n}", price=n + decimal.Decimal("0.5"), author=(anna, berta)[n % 2], extra={"n": n, "list": [n, {"k": None}]},
             known=datetime.timedelta(hours=n), key=uuid.UUID(int=n), raw=b"\\0x" * n) for n in range(20)
    )
    Author.objects.bulk_create([Author(name="Anna", tags=[]), Author(name="Clara", tags=["z"])], update_conflicts=True, unique_fields=["name"], update_fields=["tags"])
    yield list(Author.objects.order_by("name").values_list("name", "born", "tags"))
    yield list(Book.objects.filter(author__name="Anna", price__gt=5).order_by("-price").values_list("title", "price", "double", "author__born"))
    yield list(Author.objects.annotate(n=models.Count("books"), most=models.Max("books__price"), mean=models.Avg("books__price")).order_by("pk").values_list("n", "most", "mean"))
    yield list(Book.objects.filter(extra__n__gte=17).order_by("pk").values_list("extra", "extra__list__1", "known", "key"))
    yield Book.objects.filter(extra__has_key="n").count(), Book.objects.filter(extra__contains={"n": 3}).count(), Book.objects.filter(extra__list__0=4).count()
    yield Author.objects.filter(tags__contains=["z"]).count(), Author.objects.filter(tags__overlap=["x", "z"]).count(), Author.objects.filter(tags__len=0).count()
    yield list(Book.objects.annotate(rank=models.Window(functions.RowNumber(), partition_by="author", order_by="-price")).filter(rank=1).values_list("title"))
    yield list(Author.objects.filter(models.Exists(Book.objects.filter(author=models.OuterRef("pk"), price__lt=1))).values_list("name"))
    yield list(Book.objects.filter(title__iregex="^BOOK 1.$").union(Book.objects.filter(title__iendswith="k 2")).order_by("title").values_list("title"))
    yield Book.objects.filter(pk__in=Book.objects.filter(price__lt=3).values("pk")).update(price=models.F("price") + 1)
    yield Book.objects.aggregate(models.Sum("price"), models.Min("known"), total=models.Count("author", distinct=True), spread=models.StdDev("price"))
    yield list(Book.objects.dates("printed", "year"))[:0], list(Book.objects.annotate(n=functions.Length("title"), u=functions.Upper("title")).order_by("pk").values_list("n", "u")[:2])
    with transaction.atomic():
        locked = Book.objects.select_related("author").select_for_update(of=("self", "author")).order_by("pk")[:2]
        yield [(book.title, book.author.name) for book in locked]
        yield [book.title for book in Book.objects.select_for_update(skip_locked=True, no_key=True).order_by("pk")[:1]]
        try:
            with transaction.atomic():
                Author.objects.create(name="Anna")
        except IntegrityError as error:
            yield type(error.__cause__).__name__
    try:
        Book.objects.create(title="x", price=-1, author=anna)
    except IntegrityError as error:
        yield error.__cause__.diag.constraint_name
    user = User.objects.create_superuser("root", "r@example.com", "secret")
    Book.objects.first().readers.add(user)
    yield user.read.count(), list(Book.objects.prefetch_related("readers").order_by("pk")[0].readers.values_list("username"))
    yield list(Book.objects.order_by("pk").iterator(chunk_size=7))[19].title, Book.objects.in_bulk([])
    yield anna.delete()[0]
    with connection.cursor() as cursor:
        yield connection.introspection.get_sequences(cursor, "shop_author"), sorted(connection.introspection.get_constraints(cursor, "shop_author").items())
        # Expressions come as they were written, and not as PostgreSQL writes them.
        constraints = connection.introspection.get_constraints(cursor, "shop_book")
        yield [(name, {**said, "definition": None}) for name, said in sorted(constraints.items())]
        yield [tuple(row._replace(default=None)) for row in connection.introspection.get_table_description(cursor, "shop_book")], sorted(connection.introspection.get_table_list(cursor))


def admin():
    from django.test import Client
    from shop.models import Author, Book

    client = Client()
    author = Author.objects.get(name="Berta")
    yield client.post("/admin/login/?next=/admin/", {"username": "root", "password": "secret"}).status_code
    for path in ("", "shop/book/", "shop/book/?q=book+1", f"shop/book/?author__id__exact={author.pk}", "shop/author/", "auth/user/", "shop/book/add/"):
        yield path.split("exact")[0], client.get(f"/admin/{path}").status_code
    added = client.post("/admin/shop/author/add/", {"name": "Dora", "tags": "q,r"})
    yield added.status_code, Author.objects.get(name="Dora").tags
    dora = Author.objects.get(name="Dora").pk
    yield client.post(f"/admin/shop/author/{dora}/change/", {"name": "Dora", "born": "2001-02-03", "tags": "s"}).status_code
    yield client.get(f"/admin/shop/author/{dora}/history/").status_code
    yield client.post(f"/admin/shop/author/{dora}/delete/", {"post": "yes"}).status_code
    yield client.post("/admin/shop/book/", {"action": "delete_selected", "_selected_action": [Book.objects.first().pk], "post": "yes"}).status_code
    yield Author.objects.filter(name="Dora").count(), Book.objects.count()


def main():
    configure()
    parts = {"first": [migrate, queries, admin], "later": [later]}[sys.argv[2]]
    for part in parts:
        for result in part():
            print(result)


main()
