-- Regular expressions, formats, hashes, templates, rows compared by order.
SELECT 'foobar' ~ 'o+b', 'FooBar' ~ 'foo', 'FooBar' ~* 'foo', 'foobar' !~ 'x', 'FooBar' !~* 'BAR', 'a' ~ NULL, 'abc' ~ '^(b|c)', E'a\nb' ~ 'a.b';
> t|f|t|t|f||f|t
SELECT 'x' ~ '(';
! 2201B
SELECT 1 ~ 'a';
! 42883
SELECT 'foo bar' ~ '\mbar\M', 'foobar' ~ '\mbar', 'a1' ~ '^[[:alpha:]]\d$', 'a-b' ~ '[a\-]-b', 'tel: 12' ~ '\d{2}$';
> t|f|t|t|t
SELECT 'abc' SIMILAR TO 'abc', 'abc' SIMILAR TO 'a', 'abc' SIMILAR TO '%(b|d)%', 'abc' SIMILAR TO '(b|c)%', 'a.c' SIMILAR TO 'a.c', 'abc' SIMILAR TO 'a.c', 'a%' SIMILAR TO 'a#%' ESCAPE '#', 'abc' NOT SIMILAR TO '_b_';
> t|f|t|f|t|f|t|f
SELECT regexp_match('foobarbequebaz', 'bar.*que'), regexp_match('foobarbequebaz', '(bar)(beque)'), regexp_match('abc', 'x'), regexp_match('ABC', 'b', 'i');
> {barbeque}|{bar,beque}||{B}
SELECT regexp_match('abc', 'b', 'g');
! 22023
SELECT regexp_match('abc', 'b', 'z');
! 22023
SELECT regexp_replace('foobarbaz', 'b..', 'X'), regexp_replace('foobarbaz', 'b..', 'X', 'g'), regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g'), regexp_replace('abc', 'B', '[\&]', 'i'), regexp_replace('a.b', '\.', '\\');
> fooXbaz|fooXX|fooXarYXazY|a[b]c|a\b
SELECT regexp_split_to_array('the quick  brown', '\s+'), regexp_split_to_array('abc', ''), regexp_split_to_array('a,b,', ','), regexp_split_to_array('abc', 'x');
> {the,quick,brown}|{a,b,c}|{a,b,""}|{abc}
SELECT regexp_count('abcabc', 'b'), regexp_like('Hello', 'h', 'i'), substring('foobar' from 'o.b'), substring('foobar' from 'o(.)b'), substring('foobar', 'x');
> 2|t|oob|o|
SELECT * FROM regexp_split_to_table('a1b22c', '\d+');
> a
> b
> c
SELECT * FROM regexp_matches('foobarbaz', 'ba(.)', 'g');
> {r}
> {z}
SELECT * FROM regexp_matches('foobarbaz', 'ba(.)');
> {r}
SELECT * FROM string_to_table('a,b,,c', ',');
> 
> a
> b
> c
CREATE TABLE p (id int PRIMARY KEY, name text);
= CREATE TABLE
INSERT INTO p VALUES (1, 'ann'), (2, 'Bob'), (3, NULL), (4, 'anna');
= INSERT 0 4
SELECT id FROM p WHERE name ~ '^an' ORDER BY id;
> 1
> 4
SELECT id FROM p WHERE name !~* 'B' ORDER BY id;
> 1
> 4
-- Formats and hashes.
SELECT format('Hello %s, %s', 'World', 10), format('%I and %L', 'Foo bar', 'O''Reilly'), format('%2$s %1$s', 'a', 'b'), format('|%10s|%-10s|', 'foo', 'bar'), format('100%%'), format('%L %s', NULL, NULL), format(NULL);
> Hello World, 10|"Foo bar" and 'O''Reilly'|b a||       foo|bar       ||100%|NULL |
SELECT format('%s');
! 22023
SELECT format('%I', NULL);
! 22004
SELECT format('%x', 1);
! 22023
SELECT quote_ident('abc'), quote_ident('Abc'), quote_ident('a"b'), quote_ident('select'), quote_literal('it''s'), quote_literal(E'a\\b'), quote_nullable(NULL), quote_literal(42);
> abc|"Abc"|"a""b"|"select"|'it''s'|E'a\\b'|NULL|'42'
SELECT md5('abc'), md5('\x00'::bytea), encode(sha256('abc'), 'hex'), length(sha224('')), length(sha384('')), length(sha512(''));
> 900150983cd24fb0d6963f7d28e17f72|93b885adfe0da089cdf634904fd59f71|ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad|28|48|64
SELECT encode('\x00ff41'::bytea, 'hex'), encode('\x00ff41'::bytea, 'base64'), encode('\x00ff415c'::bytea, 'escape'), decode('00ff', 'hex'), decode('AP9B', 'base64'), decode('a\\b\001', 'escape');
> 00ff41|AP9B|\000\377A\\|\x00ff|\x00ff41|\x615c6201
SELECT encode('', 'rot13');
! 22023
SELECT decode('0', 'hex');
! 22023
SELECT to_hex(255), to_hex(-1), to_hex(1::bigint), bit_length('ab'), overlay('Txxxxas' placing 'hom' from 2 for 4), overlay('abcdef' placing '12' from 3), substring('\x010203'::bytea from 2 for 1), substring('\x010203'::bytea, 2);
> ff|ffffffff|1|16|Thomas|ab12ef|\x02|\x0203
-- Templates of dates.
SELECT to_char('2024-07-05 14:03:09.123456'::timestamp, 'YYYY-MM-DD HH24:MI:SS.US'), to_char('2024-07-05 14:03:09.123456'::timestamp, 'Day, DD Month YYYY HH12:MI AM'), to_char('2024-07-05'::date, 'FMDay, FMDD. FMMonth YY'), to_char('2024-07-05 04:03'::timestamp, 'Dy DY dy Mon MON mon D ID DDD IW IYYY Q CC J WW W');
> 2024-07-05 14:03:09.123456|Friday   , 05 July      2024 02:03 PM|Friday, 5. July 24|Fri FRI fri Jul JUL jul 6 5 187 27 2024 3 21 2460497 27 1
SELECT to_char('2024-07-05 14:03:09.123456'::timestamp, 'MS SSSS "of" P.M. p.m. Y,YYY'), to_char('2024-07-05 12:00+00'::timestamptz, 'YYYY TZH:TZM OF'), to_char('2024-07-01'::date, 'DDth FMDDth FMMMTH'), to_char('0044-03-15 BC'::date, 'YYYY BC');
> 123 50589 of P.M. p.m. 2,024|2024 +00:00 +00|01st 1st 7TH|0044 BC
SELECT to_date('05 Jul 2024', 'DD Mon YYYY'), to_date('2024-07-05', 'YYYY-MM-DD'), to_date('20240705', 'YYYYMMDD'), to_date('2024/187', 'YYYY/DDD'), to_timestamp('2024-07-05 14:03:09', 'YYYY-MM-DD HH24:MI:SS'), to_timestamp('05.07.2024 02:03 PM', 'DD.MM.YYYY HH12:MI AM');
> 2024-07-05|2024-07-05|2024-07-05|2024-07-05|2024-07-05 14:03:09+00|2024-07-05 14:03:00+00
SELECT to_date('x', 'YYYY');
! 22007
SELECT to_date('2024-13-01', 'YYYY-MM-DD');
! 22008
-- Rows by order.
SELECT (1, 2) < (1, 3), (1, 2) < (1, 2), (1, 2) <= (1, 2), (2, 1) > (1, 9), (1, NULL) < (2, 1), (1, NULL) < (1, 2), (1, 2, 3) >= (1, 2, 4), ROW(1, 'a') < ROW(1, 'b');
> t|f|t|t|t||f|t
SELECT (1, 2) < (1, 2, 3);
! 42601
CREATE TABLE k (a int, b int, PRIMARY KEY (a, b));
= CREATE TABLE
INSERT INTO k SELECT a, b FROM generate_series(1, 3) a, generate_series(1, 3) b;
= INSERT 0 9
SELECT a, b FROM k WHERE (a, b) > (1, 2) ORDER BY a, b LIMIT 3;
> 1|3
> 2|1
> 2|2
SELECT a, b FROM k WHERE (a, b) <= (2, 1) ORDER BY a DESC, b DESC;
> 2|1
> 1|3
> 1|2
> 1|1
-- JSON as rows.
SELECT * FROM jsonb_each('{"b": [1], "a": "x", "c": null}') ORDER BY key;
> a|"x"
> b|[1]
> c|null
SELECT * FROM jsonb_each_text('{"b": [1], "a": "x", "c": null}') ORDER BY key;
> a|x
> b|[1]
> c|
SELECT * FROM json_each('{"b": [1 ], "a": "x"}') ORDER BY key;
> a|"x"
> b|[1 ]
SELECT * FROM json_each_text('{"b": [1 ], "a": "x\"", "c": null, "n": 1.50}') ORDER BY key;
> a|x"
> b|[1 ]
> c|
> n|1.50
SELECT * FROM jsonb_array_elements('[1, {"a": 2}, null]');
> 1
> null
> {"a": 2}
SELECT * FROM jsonb_array_elements_text('[1, "x", null]') AS t(v);
> 
> 1
> x
SELECT value FROM json_array_elements('[1.0, {"a" : 2}]') WITH ORDINALITY;
> 1.0
> {"a" : 2}
SELECT e->>'id' FROM (VALUES ('[{"id": 1}, {"id": 2}]'::jsonb)) AS v(j), jsonb_array_elements(v.j) e ORDER BY 1;
> 1
> 2
SELECT * FROM jsonb_object_keys('{"b": 1, "a": 2}');
> a
> b
SELECT * FROM jsonb_each('[1]');
! 22023
SELECT * FROM jsonb_array_elements('{}');
! 22023
-- Spread.
SELECT variance(x), var_pop(x), stddev(x), stddev_pop(x) FROM (VALUES (1), (2), (4)) AS v(x);
> 2.3333333333333333|1.5555555555555556|1.5275252316519467|1.2472191289246471
SELECT variance(x::float8), stddev_samp(x::float8), var_pop(x::numeric), stddev(x::numeric) FROM (VALUES (1.5), (2.25), (4)) AS v(x);
> 1.6458333333333333|1.282900359861721|1.09722222222222222222|1.2829003598617210
SELECT variance(x), stddev_pop(x), variance(x) FILTER (WHERE x > 5) FROM (VALUES (7)) AS v(x);
> |0|
SELECT stddev(x) FROM (VALUES (3), (3), (3)) AS v(x);
> 0
SELECT bit_and(x), bit_or(x) FROM (VALUES (12), (10)) AS v(x);
> 8|14
-- An escape character at the end counts once a character is left for it.
SELECT 'a' LIKE 'a\', 'b' LIKE 'a\';
> f|f
SELECT 'ab' LIKE 'a\';
! 22025
SELECT 'ab' LIKE '%\';
! 22025
-- Matches that have a number, from a place on.
SELECT regexp_count('123123123123123', '(12)3', 1), regexp_count('123123123123', '123', 3), regexp_count('ABCABCABCABC', 'Abc', 1, 'i'), regexp_count('é1é1', '1', 3);
> 5|3|4|1
SELECT regexp_count('abc', '', 1), regexp_count('abc', '', 4), regexp_count('abc', '', 5), regexp_count('abc', NULL, 1);
> 4|1|0|
SELECT regexp_count('123123', '123', 0);
! 22023
SELECT regexp_count('123123', '123', 1, 'g');
! 22023
SELECT regexp_like('Steven', '^Ste(v|ph)en$'), regexp_like('foo' || chr(10) || 'bar', '^bar', 'n'), regexp_like('foo', 'FOO', 'i');
> t|t|t
SELECT regexp_instr('abcdefghi', 'd.f'), regexp_instr('abcdefghi', 'd.q'), regexp_instr('abcabcabc', 'a.c', 2), regexp_instr('abcabcabc', 'a.c', 1, 3), regexp_instr('abcabcabc', 'a.c', 1, 4);
> 4|0|4|7|0
SELECT regexp_instr('éabcabcabc', 'A.C', 1, 2, 0, 'i'), regexp_instr('abcabcabc', 'a.c', 1, 2, 1), regexp_instr('abc', '$', 1, 1, 1);
> 5|7|4
SELECT regexp_instr('1234567890', '(123)(4(56)(78))', 1, 1, 0, 'i', 0), regexp_instr('1234567890', '(123)(4(56)(78))', 1, 1, 0, 'i', 3), regexp_instr('1234567890', '(123)(4(56)(78))', 1, 1, 1, 'i', 4), regexp_instr('1234567890', '(123)(4(56)(78))', 1, 1, 0, 'i', 5);
> 1|5|9|0
SELECT regexp_instr('foobar', '(x)|bar', 1, 1, 0, '', 1), regexp_instr('foobar', 'bar', 1, 1, 0, '', 1), regexp_instr('foobar', 'bar', 1, 1, 0, '', 2);
> 0|4|0
SELECT regexp_instr('abcabcabc', 'a.c', 0, 1);
! 22023
SELECT regexp_instr('abcabcabc', 'a.c', 1, 0);
! 22023
SELECT regexp_instr('abcabcabc', 'a.c', 1, 1, 2);
! 22023
SELECT regexp_instr('abcabcabc', 'a.c', 1, 1, 0, 'g');
! 22023
SELECT regexp_instr('abcabcabc', 'a.c', 1, 1, 0, '', -1);
! 22023
SELECT regexp_substr('abcdefghi', 'd.f'), regexp_substr('abcdefghi', 'd.q'), regexp_substr('abcabcabc', 'a.c', 9), regexp_substr('abcaxcayc', 'a.c', 1, 3), regexp_substr('abcabc', 'A.C', 1, 2, 'i');
> def|||ayc|abc
SELECT regexp_substr('1234567890', '(123)(4(56)(78))', 1, 1, 'i', 0), regexp_substr('1234567890', '(123)(4(56)(78))', 1, 1, 'i', 2), regexp_substr('1234567890', '(123)(4(56)(78))', 1, 1, 'i', 5), regexp_substr('foobar', '(x)|bar', 1, 1, '', 1);
> 12345678|45678||
SELECT regexp_substr('abcabcabc', 'a.c', 1, 1, 'g');
! 22023
SELECT regexp_substr('abcabcabc', 'a.c', 1, 0);
! 22023
SELECT regexp_replace('A PostgreSQL function', 'A|e|i|o|u', 'X', 1), regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 0, 'i'), regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 3, 'i'), regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 7, 0, 'i');
> X PostgreSQL function|X PXstgrXSQL fXnctXXn|A PostgrXSQL function|A PostgrXSQL fXnctXXn
SELECT regexp_replace('A PostgreSQL function', 'e', 'X', 99), regexp_replace('abab', '(b)', '<\1>', 1, 2), regexp_replace('abab', 'b', 'X', 1, 1, 'g'), regexp_replace('abab', 'b', 'X', 'g'), regexp_replace('abab', '^a', 'X', 3);
> A PostgreSQL function|aba<b>|aXab|aXaX|abab
SELECT regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 0, 0, 'i');
! 22023
SELECT regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, -1, 'i');
! 22023
