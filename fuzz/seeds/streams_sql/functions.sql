SELECT repeat(s, 3) || upper(s), JSON_VALUE(s, '$.a.b[0]'), REGEXP_REPLACE(s, '(a+)', '$1$1'), CASE WHEN a > 1 THEN x / 0 ELSE 1e0 END FROM t
