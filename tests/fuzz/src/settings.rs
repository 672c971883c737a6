//! Fuzzes configuration files.

use std::path::PathBuf;

use palimpsest_settings::{FixedSource, Flags, load};

/// Asserts that an accepted file, printed again, is accepted and gives the same settings.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(loaded) = read(text) else {
        return;
    };
    let again = read(&loaded.to_toml()).expect("printed settings must be readable");
    assert_eq!(again.config, loaded.config);
}

fn read(
    text: &str,
) -> Result<palimpsest_settings::LoadedConfig, palimpsest_settings::ConfigErrors> {
    let path = PathBuf::from("palimpsest.toml");
    let flags = Flags {
        file: Some(path.clone()),
        ..Flags::default()
    };
    load(&flags, &FixedSource::default().file(path, text))
}
