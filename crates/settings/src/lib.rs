//! The settings of the server: defaults, then a TOML file, then the environment, then flags.
//!
//! Loading reports every mistake at once, with the line, variable or flag it stands in, and every
//! value knows where it came from. The common crates (config, figment, confique) stop at the first
//! value that does not fit, and those that gather errors do so per source, without lines; since
//! both matter most to somebody who sets up a server, one table of settings over `toml`'s spans
//! does it here.

mod auth;
mod checks;
mod claude;
mod config;
mod file;
mod hooks;
mod load;
mod otel;
mod otlp;
mod policy;
pub mod policy_fields;
mod postgres;
mod problem;
mod quotas;
mod render;
mod retention;
mod settings;
mod source;
mod suggest;
mod summarizer;
#[cfg(test)]
#[expect(
    clippy::needless_raw_string_hashes,
    reason = "as expect-test writes them"
)]
mod tests;
mod value;

pub use auth::{AuthConfig, JwtConfig, Text, TlsConfig};
pub use config::{
    AdminConfig, BlobsConfig, Config, GrpcConfig, LogConfig, PolicyConfig, SessionsConfig,
    ShutdownConfig, StoreConfig,
};
pub use hooks::{EndpointConfig, EndpointName, EndpointUrl, HooksConfig};
pub use load::{Flags, LoadedConfig, load};
pub use otlp::{OtlpConfig, OtlpProtocol, Ratio, ResourceAttributes, ServiceName};
pub use policy_fields::{FieldKind, PolicyField, policy_fields};
pub use postgres::{DatabaseUrl, PostgresConfig, SchemaName};
pub use problem::{ConfigErrors, ConfigProblem, SettingOrigin};
pub use source::{FixedSource, ProcessSource, Source};
pub use summarizer::{
    BaseUrl, ModelConfig, ModelName, ModelProvider, SummarizerConfig, VariableName,
};
pub use value::{LogFilter, LogFormat, Role};
