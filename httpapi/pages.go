package httpapi

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"path"
	"strings"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
)

//go:embed openapi.json
var openAPIDocument []byte

// assets has the files of the page.
//
//go:embed assets
var assets embed.FS

// contentPolicy lets the page load its own files, run the script within it, and talk to this
// server, nothing else.
var contentPolicy = "default-src 'none'; script-src 'self' '" + pageScriptHash() + "'; " +
	"style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageScriptHash returns the hash of the script within the page, as a source of a policy.
func pageScriptHash() string {
	page, _ := assets.ReadFile("assets/dashboard.html") // embedded files can be read
	_, script, _ := strings.Cut(string(page), `<script type="module">`)
	script, _, _ = strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func sendOpenAPI(ctx *fasthttp.RequestCtx) *wire.Problem {
	return sendAsset(ctx, "application/json", openAPIDocument)
}

// addPage adds the routes of the page and its files, and of the story if there is one. Steering it
// needs the admin token, which a browser never sends by itself.
func addPage(routes map[string]route, story Story) {
	list, _ := assets.ReadDir("assets") // embedded files can be read
	for _, file := range list {
		if story == nil && isStoryAsset(file.Name()) {
			continue
		}
		body, _ := assets.ReadFile("assets/" + file.Name())
		at, mediaType := "/assets/"+file.Name(), mediaTypeOf(file.Name())
		if path.Ext(at) == ".html" {
			at = "/"
			if story != nil {
				body = withStory(body)
			}
		}
		routes[at] = route{at: clientAPI, handler: func(ctx *fasthttp.RequestCtx) *wire.Problem {
			return sendAsset(ctx, mediaType, body)
		}}
	}
	if story != nil {
		routes[storyPath] = route{post: true, body: maxBody, need: twotier.RoleAdmin, guarded: true,
			at: clientAPI, handler: steerStory(story),
			get: &route{need: twotier.AnyRole, at: clientAPI, handler: sendStory(story)}}
	}
}

// mediaTypeOf returns the media type of a file of the page.
func mediaTypeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	}
	return "text/javascript; charset=utf-8"
}

// sendAsset answers with an embedded file.
func sendAsset(ctx *fasthttp.RequestCtx, mediaType string, body []byte) *wire.Problem {
	h := &ctx.Response.Header
	h.SetContentType(mediaType)
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	ctx.Response.SetBodyRaw(body)
	return nil
}

// Story is the story of a demonstration.
type Story interface {
	// Show returns how far it is, as JSON.
	Show() []byte
	// Steer repeats a chapter or goes on to one, named by a word from the user. The error names
	// the possible words.
	Steer(to string) error
}

// storyPath is the path of the story of a demonstration.
const storyPath = "/v1/demo"

// isStoryAsset reports whether a file of the page is only for a story.
func isStoryAsset(name string) bool { return strings.HasPrefix(name, "story.") }

// withStory returns the page with the files that show the story. They come first: the link from the
// terminal carries the token.
func withStory(page []byte) []byte {
	const script = `<link rel="modulepreload" href="/assets/dashboard.js">`
	return bytes.Replace(page, []byte(script), []byte(
		`<link rel="stylesheet" href="/assets/story.css">`+"\n"+
			`<link rel="modulepreload" href="/assets/story.js">`+"\n"+script), 1)
}

// sendStory returns a handler that answers with the progress of a story.
func sendStory(story Story) func(*fasthttp.RequestCtx) *wire.Problem {
	return func(ctx *fasthttp.RequestCtx) *wire.Problem {
		return sendJSON(ctx, story.Show())
	}
}

// steerStory returns a handler that carries out {"play"}.
func steerStory(story Story) func(*fasthttp.RequestCtx) *wire.Problem {
	send := sendStory(story)
	return func(ctx *fasthttp.RequestCtx) *wire.Problem {
		var d wire.Scanner
		d.Reset(ctx.PostBody())
		to, p := decodeText(&d, "play")
		if p == nil && to == "" {
			p = wire.FieldProblem("play", "missing; want again, next or the name of a chapter")
		}
		if p == nil {
			p = d.ExpectEnd()
		}
		if p != nil {
			return p
		}
		if err := story.Steer(to); err != nil {
			return wire.FieldProblem("play", err.Error())
		}
		return send(ctx)
	}
}
