//! Hints for names that do not exist.

/// What to tell about a name that does not exist: near names if there are any, else all if they are few.
pub(crate) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, what: &str) -> String {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    known.dedup();
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|k| (distance(&name.to_lowercase(), &k.to_lowercase()), *k))
        .filter(|(d, k)| *d <= (name.chars().count().min(k.chars().count()) / 3).clamp(1, 3))
        .collect();
    near.sort_unstable();
    if near.first().is_some_and(|(d, _)| *d == 0) {
        near.retain(|(d, _)| *d == 0);
    }
    let names = |list: Vec<&str>| list.join(", ");
    if !near.is_empty() {
        format!("did you mean {}?", names(near.into_iter().take(3).map(|(_, k)| k).collect()))
    } else if known.is_empty() {
        format!("there are no {what}")
    } else if known.len() <= 12 {
        format!("the {what} are {}", names(known))
    } else {
        format!("no name among the {what} is near it")
    }
}

/// The Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_wrong_case_is_near() {
        assert_eq!(hint("datetime", ["dateTime", "price"], "columns"), "did you mean dateTime?");
    }

    #[test]
    fn few_names_are_all_told() {
        assert_eq!(hint("zzz", ["b", "a"], "tables"), "the tables are a, b");
        assert_eq!(hint("zzz", [], "tables"), "there are no tables");
    }
}
