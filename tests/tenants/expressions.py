"""Random expressions of every type over the columns of tables."""

import random
import re

# Literals of each type: what is usual, what is at the edge, and now and then what is wrong.
LITERALS = {
    "smallint": ["0", "1", "-1", "7", "32767", "-32768"],
    "integer": ["0", "1", "2", "3", "-5", "42", "2147483647"],
    "bigint": ["0", "1", "-1", "10", "9223372036854775807"],
    "numeric(8,2)": ["0", "1.5", "-2.25", "10.005", "999999.99", "3"],
    "numeric": ["0", "1.10", "-7.123456", "1e3", "12345678901234567890.5"],
    "double precision": ["0::float8", "1.5::float8", "-2.25::float8", "1e10::float8", "0.1::float8"],
    "text": ["''", "'a'", "'b c'", "'Ab%'", "'ü'", "'zz'", "'2024-02-29'", "'1,2'"],
    "varchar(5)": ["'x'", "'abcde'", "''", "'12'"],
    "char(4)": ["'x'", "'ab '", "'abcd'", "''"],
    "boolean": ["true", "false"],
    "date": ["'2024-02-29'::date", "'1999-12-31'::date", "'2000-01-01'::date"],
    "time": ["'00:00'::time", "'12:34:56.789'::time", "'23:59:59'::time"],
    "timestamp": ["'2024-02-29 12:34:56.789'::timestamp", "'1969-07-20'::timestamp"],
    "timestamptz": ["'2024-02-29 12:34:56.789+02'::timestamptz", "'1969-07-20 20:17:40Z'::timestamptz"],
    "interval": ["'1 day'::interval", "'-2 hours 30 minutes'::interval", "'1 year 2 months 3 days 04:05:06'::interval"],
    "uuid": ["'00000000-0000-0000-0000-000000000000'::uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid"],
    "bytea": ["''::bytea", r"'\x00ff'::bytea", r"'\x616263'::bytea"],
    "jsonb": ["""'{"a": 1, "b": [1, null, "x"]}'::jsonb""", "'[1, 2.0, true]'::jsonb", "'null'::jsonb", """'{"a": {"b": "c"}}'::jsonb""", "'7'::jsonb"],
    "integer[]": ["'{}'::integer[]", "ARRAY[1, 2, 3]", "'{3,NULL}'::integer[]", "ARRAY[-5]"],
    "text[]": ["'{}'::text[]", "ARRAY['a', 'b c']", "'{\"\",NULL,zz}'::text[]"],
    "inet": ["'10.1.2.3/8'::inet", "'192.168.1.5'::inet", "'10.0.0.0/24'::inet", "'::1'::inet", "'2001:db8::7/64'::inet"],
    "macaddr": ["'08:00:2b:01:02:03'::macaddr", "'ff:00:ff:00:ff:00'::macaddr", "'0:0:0:0:0:0'::macaddr"],
    "varbit": ["'101'::varbit", "''::varbit", "'0010'::varbit", "'x1f'::varbit"],
    "int4range": ["'[1,5)'::int4range", "'empty'::int4range", "'(,3]'::int4range", "'[5,)'::int4range", "'[2,3]'::int4range"],
    "numrange": ["'[1.0,2.5]'::numrange", "'(1,2.50)'::numrange", "'(,)'::numrange", "'empty'::numrange"],
    "int4multirange": ["'{[1,5),[7,9)}'::int4multirange", "'{}'::int4multirange", "'{(,3]}'::int4multirange", "'{[2,4),[5,)}'::int4multirange"],
    "mood": ["'sad'::mood", "'ok'::mood", "'happy'::mood"],
}
NUMBERS = ["smallint", "integer", "bigint", "numeric(8,2)", "numeric", "double precision"]
TEXTS = ["text", "varchar(5)", "char(4)"]
# Types of which equal values can look different: which of them stands for all depends on the order of rows.
UNSHAPED = ["numeric", "double precision", "interval", "jsonb", "numrange"]
# Types of which tenants have keys.
KEYED = [of for of in LITERALS if not of.endswith("[]") and of != "jsonb"]
# Types that have a smallest value.
RANKED = [of for of in LITERALS if of not in ("boolean", "uuid", "bytea", "macaddr", "varbit", "int4range", "int4multirange", *UNSHAPED)]
# Operations that give a type: `<type>` stands for an expression of it, `<self>` for one of the same, `{this|that}` for one of these.
OF_ALL = ["coalesce(<self>, <self>)", "CASE WHEN <condition> THEN <self> ELSE <self> END", "nullif(<self>, <self>)"]
OF_NUMBERS = ["(<self> {+|-|*} <self>)", "abs(<self>)", "(-<self>)", "{greatest|least}(<self>, <self>)"]
OF_TEXTS = ["(<self> || <text>)", "{upper|lower|initcap|reverse|btrim|md5}(<self>)", "substring(<self>, 1, 2)", "replace(<self>, 'a', 'b')",
            "{left|right|repeat}(<self>, 2)", "{lpad|rpad}(<self>, 4, 'xy')", "split_part(<self>, ',', 1)", "translate(<self>, 'ab', 'x')"]
FIELDS = "{year|month|day|dow|doy|week|quarter}"
HOURS = "{hour|minute|second|milliseconds}"
FORMS = {
    "integer": ["(<self> {/|%} {2|-3|7})", "sign(<self>)::integer", "length({<text>|<bytea>})", "cardinality(<integer[]>)", "(<integer[]>)[1]",
                "position('b' in <text>)", "(<date> - <date>)", "jsonb_array_length(<jsonb>)", "(<self> {&|#} 6)", "{masklen|family}(<inet>)", "{length|octet_length}(<varbit>)", "{lower|upper}({<int4range>|<int4multirange>})", "array_position(<text[]>, 'b c')"],
    "numeric": ["(<self> {/|%} {2|-3|7})", "sign(<self>)", "round(<self>, {0|1|-1})", "{floor|ceil|trunc}(<self>)",
                f"extract({FIELDS} from {{<date>|<timestamp>|<timestamptz>}})", f"extract({HOURS} from {{<time>|<timestamp>|<interval>}})"],
    "text": ["(<jsonb> ->> {'a'|0})", "array_to_string(<text[]>, '-', '?')", "(<text[]>)[2]", "encode(<bytea>, {'hex'|'base64'|'escape'})",
             "({<integer>|<numeric>|<date>|<time>|<timestamp>|<timestamptz>|<interval>|<uuid>|<bytea>|<jsonb>|<integer[]>|<text[]>|<mood>})::text",
             "{host|abbrev}(<inet>)", "({<inet>|<macaddr>|<varbit>|<int4range>|<numrange>|<int4multirange>})::text",
             "to_char(<timestamp>, 'YYYY-MM-DD HH24:MI:SS.MS Day')", "to_char(<numeric(8,2)>, 'S999G990D99')", "concat_ws('/', <text>, <integer>, <boolean>)",
             "format('%s-%I-%L', <text>, <text>, <text>)", r"regexp_replace(<text>, '[a-c]+', '<\\&>', 'g')"],
    "date": ["(<self> + {1|-30|365})", "(<timestamp>)::date", "make_date(2024, 2, {1|29|30})"],
    "time": ["(<self> {+|-} <interval>)", "(<timestamp>)::time"],
    "timestamp": ["(<self> {+|-} <interval>)", "date_trunc('{year|month|day}', <self>)", "(<date> + <time>)", "(<timestamptz> AT TIME ZONE 'Europe/Berlin')"],
    "timestamptz": ["(<self> {+|-} <interval>)", "date_trunc('{hour|minute}', <self>)", "(<timestamp> AT TIME ZONE 'America/New_York')"],
    "interval": ["(<self> {+|-} <self>)", "(-<self>)", "(<self> * {2|0.5|-3})", "(<timestamp> - <timestamp>)", "age(<timestamp>, <timestamp>)",
                 "(<time> - <time>)", "justify_{days|hours|interval}(<self>)"],
    "uuid": ["md5(<text>)::uuid"],
    "bytea": ["(<self> || <self>)", "substring(<self>, 1, 2)", "convert_to(<text>, 'UTF8')", "decode({'6162'|'0'}, 'hex')"],
    "jsonb": ["(<self> -> {'a'|'b'|0|-1})", "(<self> || <self>)", "to_jsonb({<integer>|<numeric(8,2)>|<date>|<integer[]>|<timestamp>})",
              "jsonb_build_object('k', <integer>, 'l', <text>)", "(<self> - 'a')", "(<self> #> '{a,b}')", "jsonb_set(<self>, '{a}', '[]')"],
    "integer[]": ["(<self> || <self>)", "array_append(<self>, <integer>)", "array_remove(<self>, 1)", "ARRAY[<integer>, <integer>]", "(ARRAY[1, 2, 3])[<integer>:2]"],
    "text[]": ["string_to_array(<text>, {','|''|NULL})", "array_append(<self>, <text>)", "array_cat(<self>, <self>)"],
    "inet": ["(<self> {+|-} {1|-7|300})", "(~<self>)", "(<self> & <self>)", "{netmask|hostmask|broadcast}(<self>)", "set_masklen(<self>, {8|16|64})",
             "network(<self>)::inet", "inet_merge(<self>, <self>)::inet"],
    "int4range": ["(<self> {+|*|-} <self>)", "range_merge(<self>, <self>)", "int4range(<integer>, <integer>, '{[]|()|[)|(]}')"],
    "int4multirange": ["(<self> {+|*|-} <self>)", "int4multirange(<int4range>)", "int4multirange(<int4range>, <int4range>)", "(<int4range>)::int4multirange"],
    "numrange": ["(<self> {+|*|-} <self>)", "numrange(<numeric(8,2)>, <numeric(8,2)>, '{[]|()}')"],
    "macaddr": ["trunc(<self>)", "(~<self>)", "(<self> & <self>)"],
    "varbit": ["(<self> || <self>)", "(~<self>)::varbit", "substring(<self>, 2, 3)::varbit", "(<self> {<<|>>} {1|2})::varbit", "(<self> {&|#} <self>)::varbit",
               "overlay(<self> placing '11' from 2)::varbit"],
    "mood": ["{greatest|least}(<self>, <self>)", "(<text>)::mood"],
}
CONDITIONS = {
    "text": ["<self> {LIKE|NOT LIKE|ILIKE} {'a%'|'%b%'|'_'|'%'}", "<self> {~|!~|~*} {'^a'|'b.c'|'[0-9]$'}"],
    "integer[]": ["<self> {@>|<@|&&} <self>", "<integer> = {ANY|ALL} (<self>)"],
    "text[]": ["<self> {@>|<@|&&} <self>", "<text> = {ANY|ALL} (<self>)"],
    "inet": ["<self> {<<|<<=|>>|>>=|&&} <self>", "inet_same_family(<self>, <self>)"],
    "int4range": ["<self> {@>|<@|&&|<<|>>|&<|&>} <self>", "<self> -|- <self>", "<self> @> <integer>", "{isempty|lower_inf|upper_inc}(<self>)"],
    "int4multirange": ["<self> {@>|<@|&&|<<|>>|&<|&>} <self>", "<self> -|- <int4range>", "<self> {@>|<@|&&|<<|&<} <int4range>", "<int4range> {@>|<@|&&|>>|&>} <self>",
                       "<self> @> <integer>", "<integer> <@ <self>", "{isempty|lower_inf|upper_inc}(<self>)"],
    "numrange": ["<self> {@>|<@|&&|<<|>>|&<|&>} <self>", "<self> @> <numeric>"],
    "jsonb": ["<self> {@>|<@} <self>", "<self> ? 'a'", "jsonb_typeof(<self>) = 'object'"],
}
COMPARED = ["<self> {=|<>|<|<=|>|>=} <self>"] * 3 + ["<self> IS {|NOT }NULL", "<self> IN (<self>, <self>)", "<self> BETWEEN <self> AND <self>",
                                                      "<self> IS {|NOT }DISTINCT FROM <self>"]
CHOICE = re.compile(r"\{([^{}]*\|[^{}]*)\}")
PLACE = re.compile("<(self|condition|" + "|".join(map(re.escape, LITERALS)) + ")>")


class Expressions:
    """Expressions from a seed; `tables` has the columns of each table and their types."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tables = {}

    def pick(self, values):
        return self.random.choice(list(values))

    def chance(self, probability):
        return self.random.random() < probability

    @property
    def named(self):
        """Tables by the names that expressions use: `q` stands for whichever a query inside of another reads, of which `id` is common."""
        return {**self.tables, "q": {"id": "integer"}}

    def column(self, table, types):
        """A column of one of these types, if there is one."""
        found = [f"{table}.{column}" for column, of in self.named[table].items() if of in types]
        return self.pick(found) if found else None

    def type(self, table):
        """Mostly one that the table has."""
        return self.pick(self.named[table].values() if table and self.chance(0.6) else LITERALS)

    def literal(self, of):
        return f"NULL::{of}" if self.chance(0.08) else self.pick(LITERALS[of])

    def filled(self, form, of, table, depth):
        """A form with choices made and places filled."""
        form = CHOICE.sub(lambda choice: self.pick(choice[1].split("|")), form)
        return PLACE.sub(lambda place: self.condition(table, depth) if place[1] == "condition" else
                         self.value(of if place[1] == "self" else place[1], table, depth), form)

    def value(self, of, table=None, depth=2):
        """An expression of a type, or near it."""
        if depth == 0 or self.chance(0.35) or of == "char(4)":
            # Of char(4) no operations: PostgreSQL carries its blanks along, tenants add them at the end.
            column = self.column(table, [of]) if table and self.chance(0.7) else None
            return column or self.literal(of)
        if of == "boolean":
            return f"({self.condition(table, depth - 1)})"
        near = OF_NUMBERS if of in NUMBERS else OF_TEXTS if of in TEXTS else []
        return self.filled(self.pick(OF_ALL + near + FORMS.get(of, [])), of, table, depth - 1)

    def condition(self, table, depth=2):
        of = self.type(table)
        forms = COMPARED + 2 * CONDITIONS.get(of, [])
        if depth > 0:
            forms = forms + ["(<condition>) {AND|OR} (<condition>)", "NOT (<condition>)"]
            if table and self.chance(0.2):
                return self.question(table, depth - 1)
        if self.chance(0.05):
            return f"{self.value(of, table, depth)} {self.pick(['', 'NOT '])}IN ({', '.join(self.literal(of) for _ in range(12))})"
        return self.filled(self.pick(forms), of, table, max(depth - 1, 0))

    def question(self, table, depth):
        """A condition that asks another query, which may ask for the row around it."""
        query = f"FROM {self.pick(self.tables)} AS q WHERE {self.condition('q', depth)}"
        if self.chance(0.5):
            query += f" AND q.id {self.pick(['=', '<', '<>'])} {table}.id"
        return self.pick([f"{table}.id {self.pick(['', 'NOT '])}IN (SELECT q.id {query})", f"{self.pick(['', 'NOT '])}EXISTS (SELECT 1 {query})",
                          f"{table}.id {self.pick(['<', '>=', '<>'])} {self.pick(['ANY', 'ALL'])} (SELECT q.id {query})",
                          f"{table}.id > (SELECT count(*) {query})", f"(SELECT max(q.id) {query}) IS NOT NULL"])
