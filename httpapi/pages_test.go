package httpapi_test

import (
	"errors"
	"path"
	"regexp"
	"strings"
	"testing"

	"twotier.dev/twotier/httpapi"
)

// TestDashboardIsSelfContained checks that the page loads nothing from elsewhere and that no key
// can become HTML.
func TestDashboardIsSelfContained(t *testing.T) {
	s := newServer(t, newFake())
	outside := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]`)
	markup := regexp.MustCompile(
		`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function`)
	inline := regexp.MustCompile(`(?i)\son[a-z]+=|<style|<script>|\sstyle=|javascript:`)
	for at, media := range pageFiles(t, s) {
		ctx := call(s, "GET "+at, "")
		body := string(ctx.Response.Body())
		if got := string(ctx.Response.Header.ContentType()); ctx.Response.StatusCode() != 200 ||
			!strings.HasPrefix(got, media) {
			t.Errorf("%s: %d %s", at, ctx.Response.StatusCode(), got)
		}
		if policy := string(ctx.Response.Header.Peek(
			"Content-Security-Policy")); !strings.HasPrefix(policy, "default-src 'none'") ||
			strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", at, policy)
		}
		text := strings.ReplaceAll(body, "http://www.w3.org/2000/svg", "") // a name, not an address
		text = regexp.MustCompile(`(?m)^\s*// .*$`).ReplaceAllString(text, "")
		for _, bad := range []*regexp.Regexp{outside, markup, inline} {
			if bad == inline && at != "/" {
				continue
			}
			if hit := bad.FindString(text); hit != "" {
				t.Errorf("%s contains %q", at, hit)
			}
		}
	}
}

// pageFiles returns the paths of the page and its files, and the media type that each should have.
func pageFiles(t *testing.T, s *httpapi.Server) map[string]string {
	t.Helper()
	files := map[string]string{"/": "text/html"}
	media := map[string]string{".js": "text/javascript", ".css": "text/css"}
	for request := range s.Served() {
		if name, ok := strings.CutPrefix(request, "get /assets/"); ok {
			files["/assets/"+name] = media[path.Ext(name)]
		}
	}
	if len(files) < 4 || files["/assets/dashboard.js"] == "" || files["/assets/style.css"] == "" {
		t.Fatalf("files of the page: %v", files)
	}
	return files
}

// TestLinksOfTheDashboard: links that need a token, which a browser does not send, are marked for
// the script to show.
func TestLinksOfTheDashboard(t *testing.T) {
	store, _ := tokens(t, "reader read")
	s := serverOf(t, httpapi.Options{Tokens: store})
	links := regexp.MustCompile(`<a href="([^"]+)"( data-guarded)?>`).
		FindAllStringSubmatch(string(call(s, "GET /", "").Response.Body()), -1)
	if len(links) < 3 {
		t.Fatalf("%d links", len(links))
	}
	for _, link := range links {
		want := 200
		if link[2] != "" {
			want = 401
		}
		status(t, as(s, "", "GET "+link[1], ""), want, "")
	}
}

// tale is a story that keeps the last order.
type tale struct{ last string }

func (s *tale) Show() []byte { return []byte(`{"last":"` + s.last + `"}`) }

func (s *tale) Steer(to string) error {
	if to == "nowhere" {
		return errors.New("want a chapter")
	}
	s.last = to
	return nil
}

// telling returns a server with a story.
func telling(t *testing.T, s *tale) *httpapi.Server {
	t.Helper()
	server := serverOf(t, httpapi.Options{Service: newFake(), AdminToken: adminToken,
		Story: s})
	return server
}

// TestOnlyADemoHasAStory has neither the call nor its files without a story. On an address that
// others can reach there is none.
func TestOnlyADemoHasAStory(t *testing.T) {
	plain := newServer(t, newFake())
	for _, path := range []string{"/v1/demo", "/assets/story.js", "/assets/story.css"} {
		status(t, call(plain, "GET "+path, ""), 404, "")
		status(t, call(telling(t, &tale{}), "GET "+path, ""), 200, "")
	}
	status(t, call(plain, "POST /v1/demo", `{"play":"next"}`), 404, "")
	const script = `<link rel="modulepreload" href="/assets/story.js">`
	if page := string(call(plain, "GET /", "").Response.Body()); strings.Contains(page, script) {
		t.Error("the page has a story")
	}
	page := string(call(telling(t, &tale{}), "GET /", "").Response.Body())
	if at := strings.Index(page, script); at < 0 || at > strings.Index(page,
		`<link rel="modulepreload" href="/assets/dashboard.js">`) {
		t.Errorf("the story is not the first script of\n%s", page)
	}
	for _, listen := range []string{"0.0.0.0:8080", ":8080", "192.0.2.1:80"} {
		if _, err := httpapi.New(httpapi.Options{Service: newFake(), Story: &tale{},
			Listen: listen}); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

// TestStoryIsSteeredWithTheToken passes on orders of whoever has the token, and of nobody else.
func TestStoryIsSteeredWithTheToken(t *testing.T) {
	story := new(tale)
	s := telling(t, story)
	status(t, call(s, "POST /v1/demo", `{"play":"next"}`), 401, "")
	status(t, as(s, "a token of nobody", "POST /v1/demo", `{"play":"next"}`), 401, "")
	if story.last != "" {
		t.Errorf("steered to %s without the token", story.last)
	}
	status(t, as(s, adminToken, "POST /v1/demo", `{"play":"next"}`), 200, `{"last":"next"}`)
	status(t, call(s, "GET /v1/demo", ""), 200, `{"last":"next"}`)
	for body, want := range map[string]string{
		`{"play":"nowhere"}`: "play: want a chapter", `{}`: "play: missing", `{"go":"next"}`: "go: ",
		`{"play":"next","play":"next"}`: "want play, once", `{"play":7}`: "play: want a string",
	} {
		status(t, as(s, adminToken, "POST /v1/demo", body), 422, want)
	}
	if story.last != "next" {
		t.Errorf("steered to %s by a request with a mistake", story.last)
	}
}
