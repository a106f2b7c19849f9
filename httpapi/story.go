package httpapi

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/wire"
)

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
