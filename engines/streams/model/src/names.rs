//! Hints for names that do not exist.

/// What to tell about a name that does not exist: near names if there are any, else all if they are few.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, what: &str) -> String {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    known.dedup();
    let near = near(name, known.iter().copied());
    if !near.is_empty() {
        format!("did you mean {}?", near.join(", "))
    } else if known.is_empty() {
        format!("there are no {what}")
    } else if known.len() <= 12 {
        format!("the {what} are {}", known.join(", "))
    } else {
        format!("none of the {what} has a similar name")
    }
}

/// The names that are near one that does not exist: at most three, the nearest first, or none but those that differ in case.
pub fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|k| (distance(&name, &k.to_lowercase()), k))
        .filter(|(d, k)| *d <= (name.chars().count().min(k.chars().count()) / 3).clamp(1, 3))
        .collect();
    near.sort_unstable();
    near.dedup();
    if near.first().is_some_and(|(d, _)| *d == 0) {
        near.retain(|(d, _)| *d == 0);
    }
    near.into_iter().take(3).map(|(_, k)| k).collect()
}

/// How many characters were left out, added, exchanged for another, or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let exchanged = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = exchanged.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_wrong_case_is_near() {
        assert_eq!(hint("datetime", ["dateTime", "price"], "columns"), "did you mean dateTime?");
    }

    #[test]
    fn swapped_letters_are_one_mistake() {
        assert_eq!(near("cvs", ["csv", "json"]), ["csv"]);
        assert_eq!(near("tabel", ["table", "cable"]), ["table"]);
        assert_eq!(distance("", "ab"), 2);
    }

    #[test]
    fn few_names_are_all_told() {
        assert_eq!(hint("zzz", ["b", "a"], "tables"), "the tables are a, b");
        assert_eq!(hint("zzz", [], "tables"), "there are no tables");
    }
}
