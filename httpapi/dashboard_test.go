package httpapi_test

import (
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
	s := guarded(t, httpapi.Options{Tokens: store})
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
		if got := as(s, "", "GET "+link[1], "").Response.StatusCode(); got != want {
			t.Errorf("%s: %d, want %d", link[0], got, want)
		}
	}
}
