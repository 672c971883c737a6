//! The part of the HTTP API that answers requests for pages.

use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use palimpsest_http::{GrpcPath, Mount, names_this_machine, with_caller};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;

use crate::api::Api;
use crate::error::PageError;
use crate::pages::{self, Query, Viewer};
use crate::routes::{self, ROOT, Route, SessionPage};
use crate::{access, assets, changes, response};

/// The maximum size of a submitted form: 256 KiB.
const MAX_FORM: usize = 256 * 1024;

/// The pages, as a part of the HTTP API.
#[derive(Debug, Clone, Copy)]
pub struct Inspector {
    /// True if calls need no credential.
    is_open: bool,
    /// True if the port has TLS.
    has_tls: bool,
    /// The maximum time for a form to arrive.
    body_timeout: Duration,
}

impl Inspector {
    /// Creates the pages. `is_open` is true if calls need no credential, and `has_tls` if the port has TLS. A form must
    /// arrive within `body_timeout`.
    pub const fn new((is_open, has_tls): (bool, bool), body_timeout: Duration) -> Self {
        Self {
            is_open,
            has_tls,
            body_timeout,
        }
    }
}

impl Mount for Inspector {
    fn serves(&self, path: &str) -> bool {
        routes::is_own(path)
    }

    fn answer(
        &self,
        grpc: GrpcPath,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let settings = *self;
        Box::pin(async move { Ok(answer(settings, grpc, request).await) })
    }
}

/// Answers a request. Every failure is a page that says what to do.
async fn answer(settings: Inspector, service: GrpcPath, request: Request<Body>) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    let has_credential = access::add_credential(&mut head.headers);
    let viewer = Viewer {
        is_signed_in: has_credential && !settings.is_open,
    };
    let here = head
        .uri
        .path_and_query()
        .map_or(ROOT, |uri| uri.as_str())
        .to_owned();
    // Without keys, a foreign page could give its name the address of this machine, and read the pages as its own.
    if settings.is_open && !names_this_machine(&head.headers, &head.uri) {
        return pages::failed(&PageError::ForeignHost, &here, viewer);
    }
    let Some(route) = routes::find(head.uri.path()) else {
        return pages::failed(&PageError::NoPage, &here, viewer);
    };
    let form = match read_form(&head.method, body, settings.body_timeout).await {
        Ok(form) => form,
        Err(error) => return pages::failed(&error, &here, viewer),
    };
    let call = Call {
        api: Api::new(with_caller(service, &head)),
        query: Query::read(head.uri.query().unwrap_or_default()),
        form,
        viewer,
        is_secure: settings.has_tls || is_forwarded_https(&head.headers),
    };
    match call.answer(route).await {
        Ok(response) => response,
        Err(error) => pages::failed(&error, &here, viewer),
    }
}

fn is_forwarded_https(headers: &http::HeaderMap) -> bool {
    // A proxy that ends TLS sets this header. A caller that forges it changes only its own cookie.
    let proto = headers.get("x-forwarded-proto").map(HeaderValue::as_bytes);
    proto == Some(b"https")
}

/// Reads a submitted form. `None` for a request that only reads.
async fn read_form(
    method: &Method,
    body: Body,
    within: Duration,
) -> Result<Option<Query>, PageError> {
    match *method {
        Method::GET | Method::HEAD => Ok(None),
        Method::POST => {
            // The declared length is checked first, so that a large form is rejected before it is read.
            if body.size_hint().lower() > MAX_FORM as u64 {
                return Err(PageError::Input("The form is larger than 256 KiB."));
            }
            let whole = timeout(within, Limited::new(body, MAX_FORM).collect()).await;
            let whole = whole.map_err(|_| PageError::Input("The form did not arrive in time."))?;
            let whole = whole
                .map_err(|_| PageError::Input("The form is cut off or larger than 256 KiB."))?;
            let text = String::from_utf8(whole.to_bytes().to_vec());
            let text = text.map_err(|_| PageError::Input("The form is not valid UTF-8."))?;
            Ok(Some(Query::read(&text)))
        }
        _ => Err(PageError::Input(
            "The inspector accepts only GET and POST requests.",
        )),
    }
}

/// One request for a page.
struct Call {
    api: Api,
    query: Query,
    /// The submitted form.
    form: Option<Query>,
    viewer: Viewer,
    is_secure: bool,
}

impl Call {
    async fn answer(&self, route: Route) -> Result<Response<Body>, PageError> {
        let (api, query, viewer) = (&self.api, &self.query, self.viewer);
        let page = match (route, &self.form) {
            (Route::Style, None) => return Ok(assets::style()),
            (Route::Script, None) => return Ok(assets::script()),
            (Route::Icon, None) => return Ok(assets::icon()),
            (Route::SignIn, Some(form)) => return Ok(self.sign_in(form)),
            // Only a form signs out. A link or an image of another page cannot.
            (Route::SignOut, Some(_)) => {
                let cookie = access::remove_cookie(self.is_secure);
                return Ok(response::with_cookie(response::redirect(ROOT), cookie));
            }
            (Route::SignIn, None) => pages::sign_in::page(ROOT, None),
            (Route::Projects, None) => pages::projects::page(api, viewer).await?,
            (Route::Sessions(project), None) => {
                pages::sessions::page(api, &project, query, viewer).await?
            }
            (Route::Session(name, page), None) => match page {
                SessionPage::Overview => pages::session::page(api, &name, query, viewer).await?,
                SessionPage::View => pages::view::page(api, &name, query, viewer).await?,
                SessionPage::Difference => {
                    pages::difference::page(api, &name, query, viewer).await?
                }
                SessionPage::Transcript => {
                    pages::transcript::page(api, &name, query, viewer).await?
                }
                SessionPage::Search => pages::search::page(api, &name, query, viewer).await?,
                SessionPage::Memory => pages::memory::page(api, &name, query, viewer).await?,
                SessionPage::Removal => pages::removal::page(api, &name, query, viewer).await?,
                SessionPage::Undo => pages::undo::page(api, &name, query, viewer).await?,
                SessionPage::Changes => return changes::stream(api, &name).await,
            },
            (Route::Session(name, SessionPage::Undo), Some(form)) => {
                let path = pages::undo::undo(api, &name, form).await?;
                return Ok(response::redirect(&path));
            }
            (Route::Session(name, SessionPage::Memory), Some(form)) => {
                let path = pages::memory::edit(api, &name, form).await?;
                return Ok(response::redirect(&path));
            }
            (_, Some(_)) => return Err(PageError::Input("This page accepts no form.")),
            (Route::SignOut, None) => return Ok(response::redirect(ROOT)),
        };
        Ok(response::page(StatusCode::OK, page))
    }

    /// Stores a key in the browser, and returns to the page that needed it.
    fn sign_in(&self, form: &Query) -> Response<Body> {
        let key = form.get("key").unwrap_or_default().trim();
        // The address comes from the request. A foreign one would turn the form into a redirect to any site.
        let next = form.get("next").filter(|next| is_own_page(next));
        // The key is not verified here. A wrong one fails in the first call of the next page, which shows the form
        // again.
        let cookie = access::set_cookie(key, self.is_secure);
        if cookie.is_none() {
            let page = pages::sign_in::page(next.unwrap_or(ROOT), Some("This text is no API key."));
            return response::page(StatusCode::BAD_REQUEST, page);
        }
        response::with_cookie(response::redirect(next.unwrap_or(ROOT)), cookie)
    }
}

/// Returns true if a path leads to a page of the inspector.
fn is_own_page(path: &str) -> bool {
    let plain = path.split(['?', '#']).next().unwrap_or_default();
    routes::find(plain).is_some() && path.bytes().all(|byte| byte.is_ascii_graphic())
}
