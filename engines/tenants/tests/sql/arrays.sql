-- Arrays: as values, in columns, compared with their elements, and as rows.
SELECT ARRAY[1, 2, 3], ARRAY['a', 'b c', NULL], ARRAY[1.5, 2], ARRAY[true];
> {1,2,3}|{a,"b c",NULL}|{1.5,2}|{t}
SELECT '{1,2,3}'::int[], '{a,"b c",NULL}'::text[], '{}'::date[], ARRAY[]::int[];
> {1,2,3}|{a,"b c",NULL}|{}|{}
SELECT ARRAY[];
! 42P18
SELECT ARRAY[1, 'a'];
! 22P02
SELECT ARRAY[1, '2'], ARRAY['1', 2]::text[], ARRAY[1, 2]::bigint[], '{1,2}'::varchar(1)[];
> {1,2}|{1,2}|{1,2}|{1,2}
SELECT ARRAY[[1, 2], [3, 4]], ARRAY[ARRAY[1], ARRAY[2]], '{{a,b},{c,d}}'::text[];
> {{1,2},{3,4}}|{{1},{2}}|{{a,b},{c,d}}
SELECT ARRAY[[1, 2], [3]];
! 2202E
SELECT '{1,2'::int[];
! 22P02
SELECT '{1,a}'::int[];
! 22P02
SELECT '{{1},{2,3}}'::int[];
! 22P02
SELECT (ARRAY[1, 2, 3])[2], (ARRAY[1, 2])[5], (ARRAY[[1, 2], [3, 4]])[2][1], (ARRAY[[1, 2], [3, 4]])[2];
> 2||3|
SELECT (ARRAY[1, 2, 3, 4])[2:3], (ARRAY[1, 2, 3, 4])[:2], (ARRAY[1, 2, 3, 4])[3:], (ARRAY[[1, 2], [3, 4]])[1:2][2:2];
> {2,3}|{1,2}|{3,4}|{{2},{4}}
SELECT ('{1,2,3}'::int[])[NULL], (5)[1];
! 42804
SELECT 2 = ANY (ARRAY[1, 2]), 3 = ANY ('{1,2}'), 3 <> ALL ('{1,2}'::int[]), 1 < ANY ('{0}'::int[]), 1 > ALL ('{}'::int[]);
> t|f|t|f|t
SELECT 3 = ANY ('{1,NULL}'::int[]), 1 = ANY ('{1,NULL}'::int[]), NULL = ANY ('{1}'::int[]), 1 = ANY (NULL::int[]), NULL::int <> ALL ('{}');
> |t|||t
SELECT 1 = ANY (5);
! 42809
SELECT 'a' = ANY ('{1}'::int[]);
! 22P02
SELECT 1 = ANY (ARRAY['a']);
! 42883
SELECT 'b' = SOME ('{a,b}'::text[]), 'x' LIKE 'x';
> t|t
SELECT ARRAY[1, 2] || ARRAY[3], ARRAY[1, 2] || 3, 0 || ARRAY[1], ARRAY[[1, 2]] || ARRAY[3, 4], ARRAY[1] || NULL::int[], ARRAY[1] || NULL::int;
> {1,2,3}|{1,2,3}|{0,1}|{{1,2},{3,4}}|{1}|{1,NULL}
SELECT ARRAY[1, 2] || '{3,4}', '{a}'::text[] || 'b'::text, ARRAY[1] || 2.5;
> {1,2,3,4}|{a,b}|{1,2.5}
SELECT ARRAY[1] || ARRAY['a'];
! 42883
SELECT ARRAY[1, 2, 3] @> ARRAY[3, 1], ARRAY[1] <@ ARRAY[2, 1], ARRAY[1, 2] && ARRAY[2, 3], ARRAY[1] && ARRAY[2], '{1,NULL}'::int[] @> '{NULL}';
> t|t|t|f|f
SELECT ARRAY[1] @> ARRAY['a'];
! 42883
SELECT ARRAY[1, 2] = ARRAY[1, 2], ARRAY[1, 2] < ARRAY[1, 3], ARRAY[1, 2] > ARRAY[1], ARRAY[1, NULL] = ARRAY[1, NULL], '{}'::int[] = '{}', ARRAY[2] <> '{2}';
> t|t|t|t|t|f
SELECT array_length('{1,2,3}'::int[], 1), array_length('{}'::int[], 1), array_length('{{1,2}}'::int[], 2), cardinality('{{1,2},{3,4}}'::int[]), cardinality('{}'::int[]);
> 3||2|4|0
SELECT array_lower('[5:6]={1,2}'::int[], 1), array_upper('[5:6]={1,2}'::int[], 1), array_ndims('{{1}}'::int[]), array_dims('[0:1][2:2]={{1},{2}}'::int[]), array_dims('{}'::int[]);
> 5|6|2|[0:1][2:2]|
SELECT array_append('{1}'::int[], 2), array_prepend(0, '{1}'::int[]), array_cat('{1}'::int[], '{2,3}'), array_append(NULL::int[], 1), array_append('{1}'::int[], 2::bigint);
> {1,2}|{0,1}|{1,2,3}|{1}|{1,2}
SELECT array_position('{a,b,a}'::text[], 'b'), array_position('{a}'::text[], 'z'), array_position('{a,b,a}'::text[], 'a', 2), array_positions('{a,b,a}'::text[], 'a'), array_position('{1,NULL}'::int[], NULL);
> 2||3|{1,3}|2
SELECT array_remove('{1,2,1,NULL}'::int[], 1), array_remove('{1,NULL}'::int[], NULL), array_replace('{1,2,1}'::int[], 1, 5), trim_array('{1,2,3}'::int[], 2);
> {2,NULL}|{1}|{5,2,5}|{1}
SELECT array_to_string('{1,NULL,3}'::int[], '-'), array_to_string('{1,NULL,3}'::int[], '-', '?'), array_to_string(ARRAY[true, false], ','), array_to_string('{}'::int[], ',');
> 1-3|1-?-3|t,f|
SELECT string_to_array('a,b,,c', ','), string_to_array('abc', NULL), string_to_array('', ','), string_to_array('a,b', ''), string_to_array('a,,b', ',', ''), string_to_array(NULL, ',');
> {a,b,"",c}|{a,b,c}|{}|{"a,b"}|{a,NULL,b}|
SELECT array_length(5, 1);
! 42883
SELECT ARRAY[1, 2]::text, '{"a b",c}'::text[]::text, '{1,2}'::text::int[], '{1.6,2}'::numeric[]::int[], ARRAY['1', '2']::int[];
> {1,2}|{"a b",c}|{1,2}|{2,2}|{1,2}
SELECT 'x'::int[];
! 22P02
SELECT ARRAY[1] = 1;
! 42883
SELECT CASE WHEN true THEN ARRAY[1] ELSE '{}' END, coalesce(NULL, ARRAY['x']), greatest(ARRAY[1], ARRAY[2]);
> {1}|{x}|{2}
SELECT unnest FROM unnest(ARRAY[3, 1, 2]);
> 1
> 2
> 3
SELECT * FROM unnest('{a,b}'::text[]) AS u(x) WHERE x <> 'a';
> b
SELECT * FROM unnest(ARRAY[1, 2, 3], ARRAY['a', 'b']) AS u(n, t) ORDER BY n;
> 1|a
> 2|b
> 3|
SELECT * FROM unnest(ARRAY['x', 'y']) WITH ORDINALITY AS u(v, n) ORDER BY n;
> x|1
> y|2
SELECT * FROM unnest('{{1,2},{3,4}}'::int[]) u ORDER BY u;
> 1
> 2
> 3
> 4
SELECT * FROM generate_series(5, 7) WITH ORDINALITY;
> 5|1
> 6|2
> 7|3
SELECT * FROM generate_subscripts('{7,8,9}'::int[], 1);
> 1
> 2
> 3
SELECT * FROM unnest(5);
! 42883
SELECT t.id, u.e FROM (VALUES (1, '{a,b}'::text[]), (2, '{}'), (3, '{c}')) AS t(id, l), unnest(t.l) AS u(e) ORDER BY 1, 2;
> 1|a
> 1|b
> 3|c
SELECT t.id, u.e FROM (VALUES (1, '{a,b}'::text[]), (2, '{}')) AS t(id, l) LEFT JOIN LATERAL unnest(t.l) AS u(e) ON true ORDER BY 1, 2;
> 1|a
> 1|b
> 2|
CREATE TABLE post (id int PRIMARY KEY, tags text[] NOT NULL DEFAULT '{}', scores int[], grid numeric(5,1)[], at timestamptz[]);
= CREATE TABLE
INSERT INTO post VALUES (1, '{red,blue}', '{1,2}', '{{1.25,2},{3,4}}', NULL), (2, ARRAY['red'], NULL, NULL, ARRAY['2024-01-02 03:04:05+00'::timestamptz]), (3, DEFAULT, '{}', '{}', '{}');
= INSERT 0 3
INSERT INTO post (id, scores) VALUES (4, '{1.5}');
! 22P02
INSERT INTO post (id, scores) VALUES (4, ARRAY[1.5]) RETURNING scores;
> {2}
INSERT INTO post (id, scores) VALUES (5, ARRAY['a']);
! 42804
INSERT INTO post (id, scores) VALUES (5, 5);
! 42804
SELECT * FROM post ORDER BY id;
> 1|{red,blue}|{1,2}|{{1.3,2.0},{3.0,4.0}}|
> 2|{red}|||{"2024-01-02 03:04:05+00"}
> 3|{}|{}|{}|{}
> 4|{}|{2}||
SELECT id FROM post WHERE 'red' = ANY (tags) ORDER BY id;
> 1
> 2
SELECT id FROM post WHERE tags @> '{blue}' ORDER BY id;
> 1
SELECT id FROM post WHERE tags && ARRAY['blue', 'green'];
> 1
SELECT id FROM post WHERE scores[1] = 1 ORDER BY id;
> 1
SELECT id FROM post WHERE id = ANY ('{3,1,9,NULL,1}') ORDER BY id;
> 1
> 3
SELECT id FROM post WHERE id <> ALL ('{3,1}') ORDER BY id;
> 2
> 4
SELECT id FROM post WHERE id = ANY (ARRAY(SELECT id + 1 FROM post)) ORDER BY id;
> 2
> 3
> 4
SELECT p.id, q.id FROM post p JOIN post q ON q.id = ANY (p.scores) ORDER BY 1, 2;
> 1|1
> 1|2
> 4|2
SELECT id FROM post WHERE id = ANY ('{1,2,3,4}') AND id > 1 ORDER BY id DESC LIMIT 2;
> 4
> 3
UPDATE post SET tags = tags || 'new'::text, scores = array_append(scores, 9) WHERE id = ANY ('{1,2}') RETURNING id, tags, scores;
> 1|{red,blue,new}|{1,2,9}
> 2|{red,new}|{9}
DELETE FROM post WHERE id = ANY ('{4}');
= DELETE 1
SELECT tags, count(*) FROM post GROUP BY tags ORDER BY tags;
> {}|1
> {red,blue,new}|1
> {red,new}|1
SELECT DISTINCT scores FROM post ORDER BY scores;
> {}
> {1,2,9}
> {9}
SELECT array_agg(id ORDER BY id DESC), array_agg(DISTINCT id % 2), array_agg(scores[1] ORDER BY id) FROM post;
> {3,2,1}|{0,1}|{1,9,NULL}
SELECT array_agg(id) FROM post WHERE false;
> 
SELECT array_agg(tags[1:1] ORDER BY id) FROM post WHERE id < 3;
> {{red},{red}}
SELECT id % 2, array_agg(id ORDER BY id) FILTER (WHERE id > 1) FROM post GROUP BY 1 ORDER BY 1;
> 0|{2}
> 1|{3}
SELECT ARRAY(SELECT id FROM post ORDER BY id DESC), ARRAY(SELECT id FROM post WHERE false);
> {3,2,1}|{}
SELECT min(scores), max(tags) FROM post;
> {}|{red,new}
CREATE TABLE typed (a int[], b varchar(3)[], c numeric(4,1)[]);
= CREATE TABLE
INSERT INTO typed VALUES ('{1}', '{abc}', '{1.25}');
= INSERT 0 1
INSERT INTO typed VALUES ('{1}', '{abcd}', '{1.25}');
! 22001
INSERT INTO typed VALUES ('{1}', '{abc}', '{12345}');
! 22003
SELECT * FROM typed;
> {1}|{abc}|{1.3}
ALTER TABLE typed ALTER COLUMN a TYPE bigint[];
= ALTER TABLE
ALTER TABLE typed ALTER COLUMN a TYPE text[], ADD COLUMN d int[] DEFAULT '{7}';
= ALTER TABLE
SELECT a || 'x'::text, d FROM typed;
> {1,x}|{7}
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'typed'::regclass AND attnum > 0 ORDER BY attnum;
> a|text[]
> b|character varying(3)[]
> c|numeric(4,1)[]
> d|integer[]
CREATE TYPE color AS ENUM ('red', 'green', 'blue');
= CREATE TYPE
SELECT enum_range(NULL::color), enum_first(NULL::color), enum_last(NULL::color), enum_range('green'::color, NULL), enum_range(NULL, 'green'::color);
> {red,green,blue}|red|blue|{green,blue}|{red,green}
SELECT '{red,blue}'::color[], 'blue'::color = ANY ('{red,blue}'), ARRAY['red'::color, 'green'] || 'blue'::color;
> {red,blue}|t|{red,green,blue}
SELECT '{red,pink}'::color[];
! 22P02
CREATE TABLE palette (id int, colors color[] DEFAULT '{red}');
= CREATE TABLE
INSERT INTO palette VALUES (1, '{blue,green}'), (2, DEFAULT);
= INSERT 0 2
SELECT id, colors, colors[1] FROM palette WHERE 'red' = ANY (colors) OR 'green' = ANY (colors) ORDER BY id;
> 1|{blue,green}|blue
> 2|{red}|red
DROP TYPE color;
! 2BP01
SELECT u FROM palette, unnest(colors) u ORDER BY u;
> red
> green
> blue
SELECT '{"a": {"b": [1, 2]}}'::jsonb #> '{a,b,1}', '{"a": {"b": [1, 2]}}'::jsonb #>> ARRAY['a', 'b'], '{"a": 1, "b": 2}'::jsonb ?| ARRAY['b', 'z'], '{"a": 1}'::jsonb ?& '{a,b}';
> 2|[1, 2]|t|f
SELECT to_json(ARRAY[1, 2]), to_jsonb(ARRAY[['a', 'b'], ['c', NULL]]), json_build_object('l', ARRAY[true, NULL]);
> [1,2]|[["a", "b"], ["c", null]]|{"l" : [true,null]}
SELECT json_agg(id ORDER BY id), jsonb_agg(tags ORDER BY id), json_object_agg(id, tags[1] ORDER BY id), jsonb_object_agg(id, scores) FROM post;
> [1, 2, 3]|[["red", "blue", "new"], ["red", "new"], []]|{ "1" : "red", "2" : "red", "3" : null }|{"1": [1, 2, 9], "2": [9], "3": []}
SELECT replace(json_agg(scores ORDER BY id)::text, chr(10), '/') FROM post;
> [[1,2,9], / [9], / []]
 [9], 
 []]
SELECT json_agg(id) FROM post WHERE false;
! 42601
SELECT '[1:3]={1,2,3}'::int[], '[0:2]={1,2,3}'::int[];
> {1,2,3}|[0:2]={1,2,3}
SELECT string_agg(x, ',' ORDER BY x) FROM unnest(string_to_array('c b a', ' ')) x;
> a,b,c
SELECT x FROM unnest('{3,1,2}'::int[]) AS x ORDER BY x LIMIT 2;
> 1
> 2
SELECT U&'{a,\0085, b\00a0 }'::text[] = ARRAY['a', U&'\0085', U&'b\00a0'];
> t
-- Subscripts end where integers do.
SELECT '[2147483645:2147483646]={1,2}'::int[];
> [2147483645:2147483646]={1,2}
SELECT '[2147483646:2147483647]={1,2}'::int[];
! 54000
SELECT '[2147483645:2147483646]={1,2}'::int[] || 3;
! 54000
SELECT array_append('[2147483645:2147483646]={1,2}'::int[], 3);
! 54000
