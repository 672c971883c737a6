//! The table of models: context windows, prices and cache rules by the name of a model.
//!
//! The values are data in `models.toml`, which states its date. A configuration adds entries and overrides values. The
//! table is read when a call names a model and states no window. Its values are then recorded like those of a caller, so
//! a newer table changes no recorded view.

mod entry;
mod name;
mod price;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde::Deserialize;

pub use self::entry::{CacheMarkers, CacheRules, ModelEntry, ModelEntryError, ModelSpec};
pub use self::name::NamePattern;
use self::name::Spellings;
pub use self::price::{LongPrices, ModelPrices, UsdPerMillion};

/// The models by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelTable {
    /// The entries of a configuration. They come before those of the data file.
    configured: Vec<ModelEntry>,
}

/// The content of `models.toml`, with the cache rules of each family merged into its entries.
struct BuiltinModels {
    date: String,
    prefixes: Vec<String>,
    entries: Vec<ModelEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataFile {
    date: String,
    prefixes: Vec<String>,
    families: Vec<Family>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    // Read to reject a family without a maker. Both fields are for people who check the values.
    #[serde(rename = "maker")]
    _maker: String,
    #[serde(rename = "sources", default)]
    _sources: Vec<String>,
    #[serde(default)]
    cache: CacheRules,
    models: Vec<ModelEntry>,
}

static BUILTIN: LazyLock<BuiltinModels> = LazyLock::new(|| {
    let file: DataFile = toml::from_str(include_str!("models.toml"))
        .expect("the file of models is valid, and the tests say so");
    let entries = file.families.into_iter().flat_map(|family| {
        let Family { cache, models, .. } = family;
        models.into_iter().map(move |mut entry| {
            entry.spec.cache = entry.spec.cache.or(&cache);
            entry
        })
    });
    BuiltinModels {
        date: file.date,
        prefixes: file.prefixes,
        entries: entries.collect(),
    }
});

impl ModelTable {
    /// Returns the table of the data file, without a configuration.
    pub const fn builtin() -> Self {
        Self {
            configured: Vec::new(),
        }
    }

    /// Returns the table with the entries of a configuration.
    pub const fn with_entries(configured: Vec<ModelEntry>) -> Self {
        Self { configured }
    }

    /// Returns the day of the data file, such as `2026-11-27`.
    pub fn date() -> &'static str {
        &BUILTIN.date
    }

    /// Returns the patterns of all names, those of the configuration first.
    pub fn names(&self) -> impl Iterator<Item = &NamePattern> {
        let entries = self.configured.iter().chain(&BUILTIN.entries);
        entries.flat_map(|entry| &entry.names)
    }

    /// Returns the known properties of a model, or `None` if no entry has a matching name.
    ///
    /// A configured entry replaces only the properties that it states. The pattern `*` alone is for models that no other
    /// entry matches.
    pub fn find(&self, model: &str) -> Option<ModelSpec> {
        if model.is_empty() {
            return None;
        }
        let spellings = Spellings::of(model, &BUILTIN.prefixes);
        let configured = best_match(&self.configured, &spellings);
        let builtin = best_match(&BUILTIN.entries, &spellings);
        match (configured, builtin) {
            // A pattern without a literal byte is `*` alone.
            (Some((0, any)), builtin) => {
                Some(builtin.map_or(&any.spec, |(_, entry)| &entry.spec).clone())
            }
            (Some((_, own)), Some((_, under))) => Some(own.spec.or(&under.spec)),
            (Some((_, entry)), None) | (None, Some((_, entry))) => Some(entry.spec.clone()),
            (None, None) => None,
        }
    }
}

/// Returns the entry with the most specific pattern that matches one of the spellings, and the length of that pattern
/// without `*`. The first of several equal ones wins.
fn best_match<'t>(
    entries: &'t [ModelEntry],
    spellings: &Spellings,
) -> Option<(usize, &'t ModelEntry)> {
    let mut best: Option<(usize, &ModelEntry)> = None;
    for entry in entries {
        let lengths = entry.names.iter();
        let longest = lengths.filter_map(|name| name.match_len(spellings)).max();
        if let Some(length) = longest
            && best.is_none_or(|(longest, _)| length > longest)
        {
            best = Some((length, entry));
        }
    }
    best
}
