package httpapi

import (
	_ "embed" // for the go:embed directives below

	"github.com/valyala/fasthttp"
)

//go:embed openapi.json
var openAPIDocument []byte

//go:embed assets/dashboard.html
var pageHTML []byte

//go:embed assets/dashboard.js
var scriptJS []byte

//go:embed assets/style.css
var styleCSS []byte

// contentPolicy lets the dashboard load its own two files and talk to this server, nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func openAPI(ctx *fasthttp.RequestCtx) *problem {
	return asset(ctx, "application/json", openAPIDocument)
}
func page(ctx *fasthttp.RequestCtx) *problem {
	return asset(ctx, "text/html; charset=utf-8", pageHTML)
}
func script(ctx *fasthttp.RequestCtx) *problem {
	return asset(ctx, "text/javascript; charset=utf-8", scriptJS)
}
func style(ctx *fasthttp.RequestCtx) *problem {
	return asset(ctx, "text/css; charset=utf-8", styleCSS)
}

// asset answers with an embedded file.
func asset(ctx *fasthttp.RequestCtx, mediaType string, body []byte) *problem {
	h := &ctx.Response.Header
	h.SetContentType(mediaType)
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	ctx.Response.SetBodyRaw(body)
	return nil
}
