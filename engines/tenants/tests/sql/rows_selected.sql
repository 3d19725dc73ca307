-- Functions that return rows among what is selected, and rows as JSON.
CREATE TABLE s (id int PRIMARY KEY, tags text[], n int);
= CREATE TABLE
INSERT INTO s VALUES (1, '{a,b,c}', 2), (2, '{b}', 3), (3, '{}', 1), (4, NULL, NULL);
= INSERT 0 4
SELECT generate_series(1, 3);
> 1
> 2
> 3
SELECT id, unnest(tags) FROM s;
> 1|a
> 1|b
> 1|c
> 2|b
SELECT id, unnest(tags), generate_series(1, n) FROM s;
> 1|a|1
> 1|b|2
> 1|c|
> 2|b|1
> 2||2
> 2||3
> 3||1
SELECT id, upper(unnest(tags)) || '!' FROM s ORDER BY id, 2 DESC;
> 1|C!
> 1|B!
> 1|A!
> 2|B!
SELECT unnest(tags) AS tag, count(*) FROM s GROUP BY tag ORDER BY tag;
> a|1
> b|2
> c|1
SELECT unnest(tags), count(*) FROM s GROUP BY 1 HAVING count(*) > 1;
> b|2
SELECT unnest(tags), count(*) FROM s GROUP BY unnest(tags) ORDER BY 2 DESC, 1;
> b|2
> a|1
> c|1
SELECT DISTINCT unnest(tags) FROM s ORDER BY 1;
> a
> b
> c
SELECT generate_series(1, 5) ORDER BY 1 DESC LIMIT 2;
> 5
> 4
SELECT generate_series(1, 5) LIMIT 2 OFFSET 1;
> 2
> 3
SELECT generate_series(1, generate_series(1, 3)), generate_series(1, 2);
> 1|
> 1|1
> 1|2
> 2|
> 2|2
> 3|
SELECT id, generate_series(1, 2) AS g FROM s WHERE id < 3 ORDER BY g, id;
> 1|1
> 2|1
> 1|2
> 2|2
SELECT count(*), generate_series(1, 2) FROM s;
> 4|1
> 4|2
SELECT sum(n), unnest(array_agg(id ORDER BY id)) FROM s;
> 6|1
> 6|2
> 6|3
> 6|4
SELECT id, row_number() OVER (ORDER BY id DESC), generate_series(1, n) FROM s ORDER BY 1, 3;
> 1|4|1
> 1|4|2
> 2|3|1
> 2|3|2
> 2|3|3
> 3|2|1
SELECT * FROM (SELECT id, unnest(tags) AS tag FROM s) x WHERE tag = 'b' ORDER BY id;
> 1|b
> 2|b
SELECT id FROM s WHERE 'b' IN (SELECT unnest(tags)) ORDER BY id;
> 1
> 2
SELECT id, EXISTS (SELECT unnest(tags)) FROM s ORDER BY id;
> 1|t
> 2|t
> 3|f
> 4|f
SELECT ARRAY(SELECT unnest(tags) FROM s ORDER BY 1);
> {a,b,b,c}
SELECT (regexp_matches('a1b22', '[0-9]+', 'g'))[1];
> 1
> 22
SELECT regexp_split_to_table('a,b', ','), string_to_table('x-y-z', '-');
> a|x
> b|y
> |z
SELECT json_array_elements('[1, {"a": 2}]'), jsonb_array_elements_text('["x", null]');
> 1|x
> {"a": 2}|
SELECT jsonb_object_keys('{"b": 1, "a": 2}');
> a
> b
SELECT generate_subscripts(tags, 1), id FROM s;
> 1|1
> 1|2
> 2|1
> 3|1
WITH x AS (SELECT unnest(ARRAY[3, 1, 2]) AS v) SELECT v FROM x ORDER BY v;
> 1
> 2
> 3
INSERT INTO s (id, n) SELECT generate_series(10, 12), 7;
= INSERT 0 3
SELECT id, n FROM s WHERE n = 7;
> 10|7
> 11|7
> 12|7
SELECT id FROM s WHERE generate_series(1, 2) = 1;
! 0A000
SELECT CASE WHEN true THEN generate_series(1, 2) END;
! 0A000
SELECT coalesce(generate_series(1, 2), 0);
! 0A000
SELECT sum(generate_series(1, 2));
! 0A000
SELECT sum(generate_series(1, 2)) OVER ();
! 0A000
SELECT count(*) FROM s GROUP BY id HAVING generate_series(1, 2) > 1;
! 0A000
SELECT id FROM s ORDER BY generate_series(1, 2), id LIMIT 3;
> 1
> 2
> 3
SELECT 1 LIMIT generate_series(1, 2);
! 0A000
UPDATE s SET n = generate_series(1, 2);
! 0A000
DELETE FROM s WHERE id > 9;
= DELETE 3
SELECT row_to_json(s) FROM s;
> {"id":1,"tags":["a","b","c"],"n":2}
> {"id":2,"tags":["b"],"n":3}
> {"id":3,"tags":[],"n":1}
> {"id":4,"tags":null,"n":null}
SELECT row_to_json(x) FROM (SELECT id, n AS "the n" FROM s) x;
> {"id":1,"the n":2}
> {"id":2,"the n":3}
> {"id":3,"the n":1}
> {"id":4,"the n":null}
SELECT row_to_json(row(1, 'a', NULL)), length(row_to_json(x, true)::text) FROM (SELECT 1 AS a, 'b' AS b) x;
> {"f1":1,"f2":"a","f3":null}|17
SELECT to_json(s), to_jsonb(s) FROM s WHERE id = 1;
> {"id":1,"tags":["a","b","c"],"n":2}|{"n": 2, "id": 1, "tags": ["a", "b", "c"]}
SELECT replace(json_agg(s ORDER BY id)::text, chr(10), '/'), jsonb_agg(s ORDER BY id) FROM s WHERE id < 3;
> [{"id":1,"tags":["a","b","c"],"n":2}, / {"id":2,"tags":["b"],"n":3}]|[{"n": 2, "id": 1, "tags": ["a", "b", "c"]}, {"n": 3, "id": 2, "tags": ["b"]}]
SELECT replace(json_agg(x)::text, chr(10), '/') FROM (SELECT n FROM s ORDER BY id) x;
> [{"n":2}, / {"n":3}, / {"n":1}, / {"n":null}]
SELECT json_build_object('s', s, 'n', n) FROM s WHERE id = 2;
> {"s" : {"id":2,"tags":["b"],"n":3}, "n" : 3}
SELECT jsonb_build_array(s, 1, row(2, 3)) FROM s WHERE id = 2;
> [{"n": 3, "id": 2, "tags": ["b"]}, 1, {"f1": 2, "f2": 3}]
SELECT s.id, json_agg(t ORDER BY t.id) FROM s LEFT JOIN s t ON t.id = s.n GROUP BY s.id ORDER BY s.id;
> 1|[{"id":2,"tags":["b"],"n":3}]
> 2|[{"id":3,"tags":[],"n":1}]
> 3|[{"id":1,"tags":["a","b","c"],"n":2}]
> 4|[null]
SELECT row_to_json(t) FROM (VALUES (1, date '2024-01-01', ARRAY[1, 2])) AS t (a, b, c);
> {"a":1,"b":"2024-01-01","c":[1,2]}
SELECT array_to_json(ARRAY[1, 2]), array_to_json('{{a,b},{c,d}}'::text[]);
> [1,2]|[["a","b"],["c","d"]]
SELECT json_object('{a,1,b,NULL}'), jsonb_object('{{a,1},{b,2}}'), json_object('{a,b}', '{1,2}');
> {"a" : "1", "b" : null}|{"a": "1", "b": "2"}|{"a" : "1", "b" : "2"}
SELECT json_object('{a}');
! 2202E
SELECT json_extract_path('{"a": {"b": [1, 2]}}', 'a', 'b', '1'), jsonb_extract_path_text('{"a": {"b": "x"}}', 'a', 'b');
> 2|x
SELECT jsonb_insert('{"a": [0, 1]}', '{a,1}', '"new"'), jsonb_insert('{"a": [0, 1]}', '{a,1}', '"new"', true);
> {"a": [0, "new", 1]}|{"a": [0, 1, "new"]}
SELECT jsonb_insert('{"a": 1}', '{b}', '2'), jsonb_insert('{"a": 1}', '{a}', '2');
! 22023
SELECT jsonb_set('{"a": {"b": 1}}', '{a,b}', '2'), jsonb_set('[1, 2]', '{5}', '3'), jsonb_set('{"a": 1}', '{b}', '2', false);
> {"a": {"b": 2}}|[1, 2, 3]|{"a": 1}
SELECT jsonb_set_lax('{"a": 1}', '{a}', NULL), jsonb_set_lax('{"a": 1}', '{a}', NULL, true, 'delete_key');
> {"a": null}|{}

SELECT;
> 
SELECT WHERE false;
(SELECT) UNION ALL (SELECT LIMIT 1);
> 
> 
SELECT EXISTS (SELECT), EXISTS (SELECT WHERE 1 > 2), (SELECT count(*) FROM (SELECT) AS t);
> t|f|1
