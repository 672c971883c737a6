//! Entries of the table of models: `[[models]]` in a file.

use palimpsest_core::models::ModelEntry;
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::DeValue;

use crate::file::json;
use crate::json_schema::{choice, insert, integer, number, section, text};

/// The key of the list of entries.
pub(crate) const KEY: &str = "models";

/// The error for a value that is no list of tables.
pub(crate) const NO_LIST: &str = "models is a list of sections: write [[models]] in a file";

/// Reads one entry. An error has its position in the file.
pub(crate) fn read(
    index: usize,
    value: &Spanned<DeValue<'_>>,
) -> Result<ModelEntry, (usize, String)> {
    let at = value.span().start;
    if !matches!(value.get_ref(), DeValue::Table(_)) {
        return Err((at, NO_LIST.to_owned()));
    }
    let entry = json(value.get_ref());
    // A null stands for a TOML type without a JSON form. An optional field would accept it.
    if has_null(&entry) {
        let message =
            format!("{KEY}[{index}] has a date or a time: write a text, a number or a list");
        return Err((at, message));
    }
    ModelEntry::from_json(entry).map_err(|error| {
        let dot = if error.path.is_empty() { "" } else { "." };
        let message = format!("{KEY}[{index}]{dot}{}: {}", error.path, error.message);
        (position(value, &error.path).unwrap_or(at), message)
    })
}

/// Returns the JSON schema of the list. The types of the entries are those of `ModelEntry`, which a test compares.
pub(crate) fn schema() -> Json {
    let tokens = || integer(1..=u32::MAX.into());
    let count = || integer(0..=u32::MAX.into());
    let price = || number(Some(0.0..=1_000_000.0));
    let list = |items: Json| serde_json::json!({"type": "array", "items": items});
    let markers = choice(["none", "explicit", "automatic", "both"]);
    let mut prices = section();
    for name in [
        "input", "output", "cache_read", "cache_write", "cache_write_long",
    ] {
        insert(&mut prices, [name], price());
    }
    let mut entry = section();
    for (key, of) in [
        ("names", list(text())),
        ("window_tokens", tokens()),
        ("max_input_tokens", tokens()),
        ("max_output_tokens", tokens()),
        ("prices", prices.clone()),
        ("long_prices.above_input_tokens", count()),
        ("long_prices.prices", prices),
        ("cache.markers", markers),
        ("cache.min_tokens", count()),
        ("cache.ttls_s", list(count())),
        ("cache.lookback_blocks", count()),
        ("cache.max_markers", count()),
    ] {
        insert(&mut entry, key.split('.'), of);
    }
    entry["required"] = serde_json::json!(["names"]);
    list(entry)
}

/// Returns the position of a field by its path, such as `prices.input` or `names[1]`.
fn position(value: &Spanned<DeValue<'_>>, path: &str) -> Option<usize> {
    let mut found = None;
    let mut value = value;
    for name in path.split('.') {
        let name = name.split('[').next()?;
        let DeValue::Table(table) = value.get_ref() else {
            break;
        };
        let (key, inner) = table.iter().find(|(key, _)| key.get_ref() == name)?;
        found = Some(key.span().start);
        value = inner;
    }
    found
}

fn has_null(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Array(items) => items.iter().any(has_null),
        Json::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use palimpsest_core::models::{
        CacheMarkers, CacheRules, LongPrices, ModelEntry, ModelPrices, ModelSpec, ModelTable,
        UsdPerMillion,
    };
    use serde_json::Value as Json;

    use crate::{ConfigErrors, FixedSource, Flags, LoadedConfig, load};

    fn read(text: &str) -> Result<LoadedConfig, ConfigErrors> {
        let flags = Flags {
            file: Some("p.toml".into()),
            ..Flags::default()
        };
        load(&flags, &FixedSource::default().file("p.toml", text))
    }

    const VALID: &str = r#"
[[models]]
names = ["our-*", "Other"]
window_tokens = 90_000
prices = { input = 0.25, output = 1 }
cache.ttls_s = [300]

[[models]]
names = ["gpt-4o"]
window_tokens = 64_000
[models.long_prices]
above_input_tokens = 5
prices.input = 3
[models.prices]
input = 2
"#;

    /// Asserts that a section has exactly the fields of a complete value, and so for the sections in it.
    fn same_fields(schema: &Json, value: &Json) {
        let Json::Object(fields) = value else { return };
        let known: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(known, fields.keys().collect::<Vec<_>>());
        for (name, value) in fields {
            same_fields(&schema["properties"][name], value);
        }
    }

    #[test]
    fn the_schema_has_the_fields_of_an_entry() {
        let price = UsdPerMillion::new(1.0);
        let prices = ModelPrices {
            input: price,
            output: price,
            cache_read: price,
            cache_write: price,
            cache_write_long: price,
        };
        let entry = ModelEntry {
            names: read(VALID).unwrap().config.models[0].names.clone(),
            spec: ModelSpec {
                window_tokens: Some(2),
                max_input_tokens: Some(1),
                max_output_tokens: Some(1),
                prices: Some(prices),
                long_prices: Some(LongPrices {
                    above_input_tokens: 1,
                    prices,
                }),
                cache: CacheRules {
                    markers: Some(CacheMarkers::Both),
                    min_tokens: Some(1),
                    ttls_s: vec![1],
                    lookback_blocks: Some(1),
                    max_markers: Some(1),
                },
            },
        };
        same_fields(
            &super::schema()["items"],
            &serde_json::to_value(entry).unwrap(),
        );
    }

    #[test]
    fn entries_extend_the_table_and_override_it() {
        let loaded = read(VALID).unwrap();
        let table = ModelTable::with_entries(loaded.config.models.clone());
        let window = |model: &str| table.find(model).and_then(|spec| spec.window_tokens);
        // The name matches without the prefix of a router, the suffix of a variant, and the case.
        assert_eq!(window("acme/other:free"), Some(90_000));
        assert_eq!(window("gpt-4o"), Some(64_000));
        // The entry for `gpt-4o` does not change the built-in entry of a longer name.
        assert_eq!(window("gpt-4o-mini"), Some(128_000));
        assert_eq!(loaded.origin("models[1]").to_string(), "p.toml:8");
    }

    #[test]
    fn printed_entries_can_be_loaded() {
        let loaded = read(VALID).unwrap();
        let printed = loaded.to_toml();
        assert_eq!(read(&printed).unwrap().config, loaded.config);
        let start = printed.find("[[models]]").unwrap();
        let end = start + printed[start..].find("\n\n").unwrap();
        expect![[r#"
            [[models]]
            cache = { ttls_s = [300] }
            names = ["our-*", "other"]
            prices = { input = 0.25, output = 1.0 }
            window_tokens = 90000"#]]
        .assert_eq(&printed[start..end]);
    }

    #[test]
    fn an_invalid_entry_is_reported_with_its_line() {
        let file = r#"
[[models]]
window_tokens = 5
[[models]]
names = ["a"]
window_tokens = "large"
[[models]]
names = ["a"]
prices = { input = -1 }
[[models]]
names = ["a"]
cache.markers = 1979-05-27
[[models]]
names = ["a"]
window = 5
"#;
        // The lines of the values, and the paths. The rest of each text is serde's.
        let told = read(file).unwrap_err().to_string();
        for (line, path) in [
            (3, "models[0]: missing field `names`"),
            (6, "models[1].window_tokens: "),
            (
                9,
                "models[2].prices.input: must be a price from 0 to 1000000 dollars, is -1",
            ),
            (10, "models[3] has a date or a time"),
            (15, "models[4].window: unknown field `window`"),
        ] {
            let at = told.lines().find(|text| text.contains(path));
            let at = at.unwrap_or_else(|| panic!("{path} is missing in {told}"));
            let is_near = at.contains(&format!("p.toml:{line}:"))
                || at.contains(&format!("p.toml:{}:", line - 1));
            assert!(is_near, "{at}");
        }
        for text in ["models = [5]", "models.file = \"m.toml\""] {
            let told = read(text).unwrap_err().to_string();
            assert!(
                told.contains("p.toml:1: models is a list of sections"),
                "{told}"
            );
        }
        let flags = Flags::default().with("--set", "models", Some("a".into()));
        let error = load(&flags, &FixedSource::default()).unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("--set: models is a list of sections"),
            "{told}"
        );
    }
}
