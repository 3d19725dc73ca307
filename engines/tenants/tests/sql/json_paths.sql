-- Paths of JSON: the type, what they find, and which errors are told.
SELECT '$'::jsonpath, 'strict $.a[*] ? (@.b == 1 && @.c starts with "x")'::jsonpath, '$.**{1 to last} ? (exists (@.a))'::jsonpath, '-$.a + 2 * (3 - 1)'::jsonpath;
> $|strict $."a"[*]?(@."b" == 1 && @."c" starts with "x")|$.**{1 to last}?(exists (@."a"))|(-$."a" + 2 * (3 - 1))
SELECT '$.'::jsonpath;
! 42601
SELECT ''::jsonpath;
! 22P02
SELECT '@ == 1'::jsonpath;
! 42601
SELECT '$[last] ? (last > 1)'::jsonpath;
! 42601
SELECT '$ ? (@ like_regex "a" flag "x")'::jsonpath;
! 0A000
SELECT '$ ? (@ like_regex "a" flag "a")'::jsonpath;
! 42601
SELECT '$'::jsonpath = '$'::jsonpath;
! 42883
SELECT jsonb '{"a": 12}' @? '$', jsonb '{"a": 12}' @? '1', jsonb '{"a": 12}' @? '$.a.b', jsonb '{"a": {"b": 12}}' @? '$.a.b', jsonb '{"a": 12}' @? '$.a + 2', jsonb '{"a": {"a": 12}}' @? '$.*.a', jsonb '{"a": 12}' @? '$ ? (@.b > 1)', jsonb '[]' @? '$[*]', jsonb '[1]' @? 'strict $[1]', jsonb '1' @? 'lax $[0]';
> t|t|f|t|t|t|f|f||t
SELECT jsonb '{"a": [1, 2, 3]}' @@ '$.a[*] > 2', jsonb '{"a": [1, 2, 3]}' @@ '$.a[*] > 5', jsonb '{"a": 1}' @@ '$.a', jsonb '{"a": true}' @@ '$.a', jsonb '{"a": null}' @@ '$.a', jsonb '[true, false]' @@ '$[*]', jsonb '[]' @@ '$[*]';
> t|f||t|||
SELECT '{"a": 1}'::jsonb @@ NULL, NULL::jsonb @? '$';
> |
SELECT 1 @? '$.a';
! 42883
SELECT jsonb_path_query('[12, {"a": 13}, {"b": 14}, "ccc", true]', '$[*]');
> "ccc"
> 12
> true
> {"a": 13}
> {"b": 14}
SELECT jsonb_path_query('[12, {"a": 13}, {"b": 14}, "ccc", true]', '$[2.5 - 1 to $.size() - 2]');
> "ccc"
> {"a": 13}
> {"b": 14}
SELECT * FROM jsonb_path_query('[12, {"a": 13}, {"b": 14}]', 'lax $[0 to 2].a') AS r(v);
> 13
SELECT jsonb_path_query('[1,2,3]', '$[last, 0, 10]'), 1;
> 1|1
> 3|1
SELECT jsonb_path_query('{"a": 10}', '$ ? (@.a < $value)', '{"value": 13}');
> {"a": 10}
SELECT jsonb_path_query('{"a": 10}', '$ ? (@.a < $value)', '[]');
! 22023
SELECT jsonb_path_query('{"a": 10}', '$ ? (@.a < $value)');
! 42704
SELECT jsonb_path_query('{"a": 10}', '$ ? (@.a < $value)', '{}', true);
! 42704
SELECT jsonb_path_query('1', 'strict $.a');
! 2203A
SELECT jsonb_path_query('{}', 'strict $.a');
! 2203A
SELECT jsonb_path_query('1', 'strict $.a', '{}', true);
SELECT jsonb_path_query('1', 'strict $.*');
! 2203C
SELECT jsonb_path_query('1', 'strict $[*]');
! 22039
SELECT jsonb_path_query('1', 'strict $[1]');
! 22039
SELECT jsonb_path_query('[1]', 'strict $["a"]');
! 22033
SELECT jsonb_path_query('[1]', 'strict $[10000000000000000]');
! 22033
SELECT jsonb_path_query('[1]', 'strict $[1]');
! 22033
SELECT jsonb_path_query_array('[1, [2, 3], {"a": [4]}]', '$.**'), jsonb_path_query_array('[1, [2, 3], {"a": [4]}]', '$.**{2 to 3}'), jsonb_path_query_array('[1, [2, 3], {"a": [4]}]', '$.**{last}'), jsonb_path_query_array('[1, [2, 3], {"a": [4]}]', 'strict $.**{1}'), jsonb_path_query_array('1', '$.**{last}');
> [[1, [2, 3], {"a": [4]}], 1, [2, 3], 2, 3, {"a": [4]}, [4], 4]|[2, 3, [4], 4]|[1, 2, 3, 4]|[1, [2, 3], {"a": [4]}]|[]
SELECT jsonb_path_query_array('{"a": {"b": 1}}', 'lax $.**.b'), jsonb_path_query_array('{"a": {"b": 1}}', 'strict $.**.b ? (@ > 0)'), jsonb_path_query_array('{"a": [{"b": 1}, {"c": 2}]}', '$.a.b'), jsonb_path_query_array('{"a": [{"b": 1}, {"c": 2}]}', '$.a.*');
> [1]|[1]|[1]|[1, 2]
SELECT jsonb_path_query_array('[[1, 2], [3]]', '$[*][*]'), jsonb_path_query_array('[[1, 2], [3]]', '$[*] ? (@ > 1)'), jsonb_path_query_array('[[1, 2], [3]]', 'strict $[*] ? (@[0] > 1)'), jsonb_path_query_array('[1, 2, 3]', '$ ? (@ > 1)');
> [1, 2, 3]|[2, 3]|[[3]]|[2, 3]
SELECT jsonb_path_query_first('[1, 2, 3]', '$[*] ? (@ > 1)'), jsonb_path_query_first('[1]', '$[*] ? (@ > 1)'), jsonb_path_exists('[1, 2]', '$[*] ? (@ > 1)'), jsonb_path_exists('[1]', 'strict $[1]', '{}', true), jsonb_path_match('[1]', '$[0] == 1'), jsonb_path_match('[1]', '$[0] == "a"');
> 2||t||t|
SELECT jsonb_path_match('[1]', '$[0]');
! 22038
SELECT jsonb_path_match('[1]', '$[0]', '{}', true);
> 
SELECT jsonb_path_exists('[1]', 'strict $[1]');
! 22033
SELECT jsonb_path_query_array('[1, "a", null, true, [], {}]', '$[*].type()'), jsonb_path_query_array('[1, "a", null, true, [], {}]', '$.type()'), jsonb_path_query_array('[[], [1, 2], 3]', '$[*].size()'), jsonb_path_query_array('[1.5, -1.5, 0]', '$[*].abs()'), jsonb_path_query_array('[1.5, -1.5, 0]', '$.floor()'), jsonb_path_query_array('[1.5, -1.5, 0]', '$.ceiling()'), jsonb_path_query_array('["1.5", 2, "-3e2"]', '$.double()');
> ["number", "string", "null", "boolean", "array", "object"]|["array"]|[0, 2, 1]|[1.5, 1.5, 0]|[1, -2, 0]|[2, -1, 0]|[1.5, 2, -300]
SELECT jsonb_path_query('[1]', 'strict $.double()');
! 22036
SELECT jsonb_path_query('"x"', '$.double()');
! 22036
SELECT jsonb_path_query('"inf"', '$.double()');
! 22036
SELECT jsonb_path_query('true', '$.abs()');
! 22036
SELECT jsonb_path_query('1', 'strict $.size()');
! 22039
SELECT jsonb_path_query('{"b": [1], "a": 2}', '$.keyvalue()');
> {"id": 0, "key": "a", "value": 2}
> {"id": 0, "key": "b", "value": [1]}
SELECT jsonb_path_query('[{"a": 1}, {"c": {"d": 2}}]', '$[*].keyvalue().key');
> "a"
> "c"
SELECT jsonb_path_query('1', '$.keyvalue()');
! 2203C
SELECT jsonb_path_query('{"a": [2]}', '$.a * 2'), jsonb_path_query('{"a": [2]}', '-$.a'), jsonb_path_query('[7]', '$[0] % 4'), jsonb_path_query('[7]', '$[0] / 4 - 0.50'), jsonb_path_query('7', '+$');
> 4|-2|3|1.2500000000000000|7
SELECT jsonb_path_query('[1, 2]', '$ * 2');
! 22038
SELECT jsonb_path_query('"a"', '$ + 1');
! 22038
SELECT jsonb_path_query('"a"', '-$');
! 2203B
SELECT jsonb_path_query('1', '$ / 0');
! 22012
SELECT jsonb '1' @? '$ ? ($ / 0 > 1)', jsonb_path_query('1', '($ / 0 > 1) is unknown');
> f|true
SELECT jsonb_path_query_array('[null, 1, "abc", "abd", "aBdC", "abdacb", "babc"]', 'lax $[*] ? (@ starts with "abc")'), jsonb_path_query_array('["abc", "xabc"]', '$[*] ? (@ starts with $p)', '{"p": "x"}'), jsonb_path_query_array('["ab\nc", "aBc"]', '$[*] ? (@ like_regex "b.c")'), jsonb_path_query_array('["ab\nc", "aBc"]', '$[*] ? (@ like_regex "b.c" flag "s")'), jsonb_path_query_array('["ab\nc", "aBc"]', '$[*] ? (@ like_regex "^c" flag "m")'), jsonb_path_query_array('["a.c", "aBc", "A.C"]', '$[*] ? (@ like_regex "a.c" flag "iq")');
> ["abc"]|["xabc"]|[]|["ab\nc"]|["ab\nc"]|["a.c", "A.C"]
SELECT jsonb_path_query_array('[1, "1", true, null, [], {}]', '$[*] ? (@ == 1)'), jsonb_path_query_array('[1, "1", true, null]', '$[*] ? (@ != null)'), jsonb_path_query_array('[1, "1", true, null]', '$[*] ? (@ == null)'), jsonb_path_query_array('["b", "a", "ab"]', '$[*] ? (@ > "a")'), jsonb_path_query_array('[true, false]', '$[*] ? (@ >= true)'), jsonb_path_query_array('[1, "1"]', '$[*] ? ((@ == 1) is unknown)'), jsonb_path_query_array('[1, "1"]', '$[*] ? (!(@ == 1))');
> [1]|[1, "1", true]|[null]|["b", "ab"]|[true]|["1"]|[]
SELECT jsonb_path_query_array('[1, 2]', '$[*] > 1'), jsonb_path_query_array('[1, 2]', 'strict $[*] > "a"'), jsonb_path_query_array('[1, "a", 2]', '$[*] > 1'), jsonb_path_query_array('[1, "a", 2]', 'strict $[*] > 1'), jsonb_path_query_array('[]', '$[*] == 1');
> [true]|[null]|[true]|[null]|[false]
SELECT jsonb_path_query_array('[1, 2, 3]', '($[*] ? (@ > 1)) ? (@ < 3)'), jsonb_path_query_array('[{"a": [1, {"b": 2}]}]', '$[*].a[*] ? (exists (@.b ? (@ == $two)))', '{"two": 2}'), jsonb_path_query_array('[1]', 'exists ($[*] ? (@ > 1)) || (1 == 1)');
> [2]|[{"b": 2}]|[true]
SELECT jsonb_path_query_array('[{"a": 1, "b": 2}, {"a": 3}]', '$[*] ? (@.a > 1 || @.b == 2).a'), jsonb_path_query_array('{"a\"b": 1, "": 2}', '$."a\"b"'), jsonb_path_query_array('{"a\"b": 1, "": 2}', '$.""');
> [1, 3]|[1]|[2]
SELECT jsonb_path_exists_tz('[1]', '$[0]'), jsonb_path_query_array_tz('[1]', '$[0]');
> t|[1]
CREATE TABLE paths (id int PRIMARY KEY, doc jsonb, way jsonpath);
= CREATE TABLE
INSERT INTO paths VALUES (1, '{"a": [1, 2]}', '$.a[*]'), (2, '{"b": {"c": "x"}}', '$.b.c'), (3, NULL, '$'), (4, '[]', NULL);
= INSERT 0 4
SELECT id, jsonb_path_query(doc, way), way FROM paths ORDER BY id;
> 1|1|$."a"[*]
> 1|2|$."a"[*]
> 2|"x"|$."b"."c"
SELECT id FROM paths WHERE doc @? way ORDER BY id;
> 1
> 2
SELECT p.id, r.v FROM paths p, jsonb_path_query(p.doc, p.way) r(v) ORDER BY 1, 2;
> 1|1
> 1|2
> 2|"x"
CREATE INDEX ON paths (way);
! 42704
SELECT '$[*] ? (@.a == 1)'::jsonpath::text || '!', pg_typeof('$'::jsonpath), ARRAY['$.a', '$.b']::jsonpath[];
> $[*]?(@."a" == 1)!|jsonpath|{"$.\"a\"","$.\"b\""}
SELECT jsonb_path_query('{"a": {"b": 1}}', '$.**{0}');
> {"a": {"b": 1}}
SELECT jsonb_path_query('{"a": {"b": 1}}', '$.**{1 to 0}'), 1;
SELECT jsonb_path_query_array('{"a": {"b": {"c": 1}}}', '$.**{0 to 1}'), jsonb_path_query_array('{"a": {"b": {"c": 1}}}', '$.**{1 to 2}');
> [{"a": {"b": {"c": 1}}}, {"b": {"c": 1}}]|[{"b": {"c": 1}}, {"c": 1}]
SELECT jsonb_path_query_first('[{"a": 1}, {}]', 'strict $[*].a');
! 2203A
SELECT jsonb_path_query('[1, "a"]', '$[*].abs()') LIMIT 1;
! 22036
SELECT jsonb '{"a": null}' @? '$ ? (@.a == $x)', jsonb '1' @? '$x';
! 42704
SELECT jsonb '{"a": 1, "b": 5}' @? '$ ? ((@.a - @.b).abs() > 2)', jsonb_path_query('{"a": 3}', '2 + (-$.a).abs()'), jsonb_path_query('[1, 2, 3]', '$[($[0] + 1).abs()]');
> t|5|3
SELECT num_nulls(1, NULL, 'x', NULL);
> 2
-- Arguments with names.
SELECT jsonb_path_query('[1]', 'strict $[1]', silent => true);
SELECT jsonb_path_query('[1, 2]', '$[*] ? (@ > $x)', vars => '{"x": 1}');
> 2
SELECT * FROM jsonb_path_query(target => '[1, 2]', path => '$[*]') AS q (v) ORDER BY v;
> 1
> 2
SELECT jsonb_path_exists('[]', 'strict $[1]', silent => true), jsonb_path_match('1', '$', silent := true), jsonb_path_query_array(path => '$[*]', target => '[3]'), jsonb_path_query_first('[1]', 'strict $.a', silent => true, vars => '{}');
> ||[3]|
SELECT jsonb_path_query('[1]', 'strict $[1]', silent => false);
! 22033
SELECT jsonb_path_query_array('[1]', '$', quiet => true);
! 42883
SELECT jsonb_path_query_array('[1]', '$', path => '$');
! 42883
SELECT jsonb_path_query_array('[1]', silent => true);
! 42883
