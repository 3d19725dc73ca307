-- Functions and aggregates that applications use.
CREATE TABLE f (id int PRIMARY KEY, g text, v text);
= CREATE TABLE
INSERT INTO f VALUES (1, 'a', 'x'), (2, 'a', 'z'), (3, 'a', 'y'), (4, 'b', 'x'), (5, 'b', NULL), (6, 'b', 'x'), (7, 'c', NULL);
= INSERT 0 7
SELECT g, string_agg(v, ', ' ORDER BY id) FROM f GROUP BY g ORDER BY g;
> a|x, z, y
> b|x, x
> c|
SELECT string_agg(v, '-' ORDER BY v DESC, id) FROM f;
> z-y-x-x-x
SELECT string_agg(DISTINCT v, ',') FROM f;
> x,y,z
SELECT string_agg(v, g ORDER BY id), string_agg(v, NULL ORDER BY id) FROM f;
> xazaybxbx|xzyxx
SELECT string_agg(v, ',' ORDER BY id) FILTER (WHERE id > 3) FROM f;
> x,x
SELECT string_agg(v, ',') FROM f WHERE false;
> 
SELECT id, string_agg(v, '') OVER (ORDER BY id) FROM f ORDER BY id;
> 1|x
> 2|xz
> 3|xzy
> 4|xzyx
> 5|xzyx
> 6|xzyxx
> 7|xzyxx
SELECT sum(id ORDER BY id DESC) FROM f;
> 28
SELECT string_agg(id, ',') FROM f;
! 42883
SELECT lpad('7', 3, '0'), rpad('ab', 5, 'xy'), lpad('abcdef', 3), rpad('a', 3) || '|', lpad('a', -1), lpad('a', 3, '');
> 007|abxyx|abc|a  |||a
SELECT split_part('a,b,c', ',', 2), split_part('a,b,c', ',', -1), split_part('a', ',', 2), split_part('abc', '', 1);
> b|c||abc
SELECT split_part('a', ',', 0);
! 22023
SELECT initcap('hello wORLD, it''s a_b 2nd');
> Hello World, It'S A_B 2nd
SELECT ascii('A'), ascii(''), ascii('ü'), chr(65), chr(252);
> 65|0|252|A|ü
SELECT chr(0);
! 54000
SELECT translate('12345', '143', 'ax'), starts_with('abc', 'ab'), concat_ws(',', 'a', NULL, 'b'), concat_ws(NULL, 'a');
> a2x5|t|a,b|
SELECT exp(1.0::float8), ln(10::float8), log(1000::float8);
> 2.718281828459045|2.302585092994046|3
SELECT ln(0::float8);
! 2201E
SELECT make_date(2024, 2, 29);
> 2024-02-29
SELECT make_date(2023, 2, 29);
! 22008
SELECT length(gen_random_uuid()::text), gen_random_uuid() = gen_random_uuid();
> 36|f
SELECT 'a%c' LIKE 'a!%c' ESCAPE '!', 'abc' LIKE 'a!%c' ESCAPE '!', 'a\c' LIKE 'a\c' ESCAPE '', 'A_' ILIKE 'a#_' ESCAPE '#';
> t|f|t|t
SELECT 'a' LIKE 'a' ESCAPE 'xx';
! 22025
SELECT pg_typeof(1), pg_typeof('a'), pg_typeof(1.5), pg_typeof(now()), pg_typeof(NULL::varchar), pg_typeof(ARRAY[1]), pg_typeof(1::smallint + 1);
> integer|unknown|numeric|timestamp with time zone|character varying|integer[]|integer
SELECT pg_typeof(nullif(1::int4, 2::int8)), pg_typeof(nullif(1, 2.5)), pg_typeof(nullif(1.5, 2)), pg_typeof(nullif(1, 2.5::float8)), pg_typeof(nullif(1.5::float4, 2::float8)), pg_typeof(nullif(now()::date, now())), pg_typeof(nullif(1, 2::float4)), pg_typeof(nullif(1.5::float4, 2));
> integer|numeric|numeric|double precision|real|date|double precision|real
SELECT nullif(1, 2.5) + 1, nullif(1, 1.0), nullif('2020-01-01'::date, '2020-01-01 00:00:01'::timestamp), nullif('2020-01-01'::date, '2020-01-01 00:00:00'::timestamp), 66 + nullif(-count(*), avg(30)) FROM (VALUES (1)) v(a);
> 2||2020-01-01||65
SELECT nullif('a'::varchar, 'b'), nullif(NULL, 1), nullif(1, NULL), nullif('a', 'a'), nullif(true, false);
> a||1||t
SELECT 16777217 = 16777216::float4, 0.1::float4 = 0.1, 0.1::float4 IN (0.1, 0.2), 0.1::float4 = 0.1::float4, 0.1 < 0.1::float4, pg_typeof(coalesce(1, 1::float4)), 0.1::float4 = ANY (ARRAY[0.1]), 0.1::float4 IN (SELECT 0.1);
> f|f|t|t|t|real|f|f
SELECT '7'::"int4", '{"a": 1}'::"json", '{}'::pg_catalog.jsonb, '2024-02-29'::pg_catalog."date", 'x'::"text";
> 7|{"a": 1}|{}|2024-02-29|x
SELECT 'x'::"Text";
! 42704
SELECT to_regtype('text') = 25, to_regtype('name') = 19, format_type(19, -1), format_type(18, -1), to_regtype('nothing') IS NULL;
> t|t|name|"char"|t
-- Characters and bytes that are none.
SELECT chr(-1);
! 22023
SELECT '\x0'::bytea;
! 22023
SELECT '\xzz'::bytea;
! 22023
SELECT '\x 00 ff'::bytea;
> \x00ff
SELECT '\7'::bytea;
! 22P02
SELECT jsonb_set('[1,2]', '{9223372036854775807}', '1');
! 22P02
-- A text and an object are put together as texts.
SELECT 'a'::text || '{"a": 1}'::jsonb, '{"a": 1}'::jsonb || 'a'::varchar(3), '{"a": 1}'::jsonb || '{"b": 2}';
> a{"a": 1}|{"a": 1}a|{"a": 1, "b": 2}
-- An array of all further arguments.
SELECT concat(VARIADIC ARRAY[1, 2, NULL]), concat_ws('-', VARIADIC '{a,NULL,b}'::text[]), concat(VARIADIC ARRAY[true, false]), concat(VARIADIC '{}'::int[]) = '';
> 12|a-b|tf|t
SELECT concat(VARIADIC NULL::int[]) IS NULL, concat_ws(',', VARIADIC NULL::int[]) IS NULL, concat_ws(NULL, VARIADIC ARRAY['a']) IS NULL, format('%s!', VARIADIC ARRAY['x']), format('none', VARIADIC NULL::int[]);
> t|t|t|x!|none
SELECT format('%2$s, %1$I', VARIADIC ARRAY['A b', 'c']), format('%s %s', VARIADIC ARRAY[[1], [2]]);
> c, "A b"|1 2
SELECT format('%s %s', VARIADIC ARRAY[1]);
! 22023
SELECT json_build_array(VARIADIC '{a,b,NULL}'::text[]), jsonb_build_array(VARIADIC '{{1,4},{2,5}}'::int[][]), json_build_array(VARIADIC NULL::text[]), jsonb_build_array(VARIADIC '{}'::text[]);
> ["a", "b", null]|[1, 4, 2, 5]||[]
SELECT json_build_object(VARIADIC '{a,b,c,NULL}'::text[]), jsonb_build_object(VARIADIC '{1,2,3,4}'::int[]), jsonb_build_object(VARIADIC NULL::text[]), json_build_array(VARIADIC ARRAY['{"a": 1}'::json]);
> {"a" : "b", "c" : null}|{"1": 2, "3": 4}||[{"a": 1}]
SELECT json_build_object(VARIADIC '{a,b,c}'::text[]);
! 22023
SELECT jsonb_build_object(VARIADIC ARRAY[NULL, 'a']);
! 22023
SELECT jsonb_extract_path('{"a": [1, {"b": 2}]}', VARIADIC ARRAY['a', '1', 'b']), json_extract_path_text('{"a": "x"}', VARIADIC '{a}'), jsonb_extract_path('{"a": 1}', VARIADIC NULL) IS NULL;
> 2|x|t
SELECT num_nulls(VARIADIC ARRAY[1, NULL, 2]), num_nonnulls(VARIADIC '{NULL,a}'::text[]), num_nulls(VARIADIC NULL::text[]);
> 1|1|
SELECT concat(VARIADIC v || 3) FROM (VALUES (ARRAY[1, 2]), (NULL)) AS x (v) ORDER BY v;
> 123
> 3
SELECT concat_ws(',', VARIADIC 10);
! 42804
SELECT concat('a', VARIADIC ARRAY['b']);
! 42883
SELECT length(VARIADIC ARRAY['b']);
! 42883
-- Characters by their numbers, and the names of a name.
SELECT unistr('\0064at\+0000610'), unistr('d\u0061t\U000000610'), unistr('a\\b'), unistr('\d83d\de00é'), unistr(NULL);
> data0|data0|a\b|😀é|
SELECT unistr('wrong: \db99');
! 42601
SELECT unistr('wrong: \db99\0061');
! 42601
SELECT unistr('wrong: \db99 ');
! 42601
SELECT unistr('wrong: \+2FFFFF');
! 22023
SELECT unistr('wrong: \xyz');
! 42601
SELECT unistr('wrong: \0000');
! 22023
SELECT parse_ident('foo.Boo'), parse_ident(' first . "  sec""ond  " ."É".é$1 '), parse_ident('foo.boo[]', false), parse_ident('foo.boo[]', strict => false), parse_ident(NULL);
> {foo,boo}|{first,"  sec\"ond  ",É,é$1}|{foo,boo}|{foo,boo}|
SELECT parse_ident('foo.boo[]');
! 22023
SELECT parse_ident(' .aaa');
! 22023
SELECT parse_ident('aaa . ');
! 22023
SELECT parse_ident('a.""');
! 22023
SELECT parse_ident('"a');
! 22023
SELECT parse_ident('10.20');
! 22023
SELECT parse_ident('a', strikt => false);
! 42883
-- Functions in FROM that return a value.
SELECT * FROM lower('AB');
> ab
SELECT lower FROM lower('AB') AS l (lower), length(l.lower) AS n WHERE n = 2;
> ab
SELECT l FROM upper('ab') AS l;
> AB
SELECT t.a, upper FROM (VALUES ('x'), ('y')) AS t (a), upper(t.a) ORDER BY 1;
> x|X
> y|Y
SELECT n FROM (VALUES (1), (2)) AS t (a) LEFT JOIN abs(t.a - 3) AS n ON n > 1 ORDER BY 1;
> 2
> 
SELECT * FROM sum(1);
! 42803
SELECT * FROM (VALUES (1)) AS t (a), abs(sum(t.a));
! 42803
SELECT * FROM no_such_function(1);
! 42883
SELECT 5 # '3', 5 & '3', '5' | 2, 6 # NULL, '7'::int2 # '1';
> 6|1|7||6
SELECT '2024-05-05'::date - '2024-05-01', '12:00'::time - '10:30', '2024-05-05'::date - NULL, '12:00'::time - NULL;
> 4|01:30:00||
SELECT '2024-05-05'::date - 'x';
! 22007
-- Names of types are functions that cast.
SELECT float8(count(*)) / 2, int4('12'), int8(1.5), text(12), date('2026-01-02'), bool(1), oid(7) FROM generate_series(1, 3);
> 1.5|12|2|12|2026-01-02|t|7
SELECT float4('x');
! 22P02
SELECT int4('2026-01-01'::date);
! 42883
SELECT int4(1, 2);
! 42883
SELECT jsonb('{"a": 1}'::text), text('{1,2}'::int[]), bytea('abc'), uuid('00000000-0000-0000-0000-000000000001'), inet('10.0.0.1/8'), cidr(inet '10.1.2.3/8'), timestamptz('2026-01-01 00:00+00');
> {"a": 1}|{1,2}|\x616263|00000000-0000-0000-0000-000000000001|10.0.0.1/8|10.0.0.0/8|2026-01-01 00:00:00+00
SELECT text(ROW(1, 2));
! 42883
