package gomiddleware_test

import (
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/clients/gomiddleware/echogate"
	"twotier.dev/twotier/clients/gomiddleware/fibergate"
	"twotier.dev/twotier/clients/gomiddleware/gingate"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/gated"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// server serves connections until the listener is closed.
type server func(ln net.Listener) error

func serveGin(g *client.Gate, key func(*http.Request) (string, bool)) server {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gingate.New(g, key))
	router.GET("/", func(c *gin.Context) { c.String(200, "hello") })
	return func(ln net.Listener) error { return http.Serve(ln, router) }
}

func serveEcho(g *client.Gate, key func(*http.Request) (string, bool)) server {
	e := echo.New()
	e.Use(echogate.New(g, key))
	e.GET("/", func(c echo.Context) error { return c.String(200, "hello") })
	return func(ln net.Listener) error { return http.Serve(ln, e) }
}

func serveFiber(g *client.Gate, key func(*fasthttp.RequestCtx) (string, bool)) server {
	app := fiber.New()
	app.Use(fibergate.New(g, key))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	return func(ln net.Listener) error {
		return app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true})
	}
}

// TestFrameworks compares the answers of each framework with those of all others.
func TestFrameworks(t *testing.T) {
	node := proctest.NewProgramFrom(t, "../..").Serve(t, proctest.Options{})
	for name, serve := range map[string]func(*client.Gate, ...netip.Prefix) server{
		"gin": func(g *client.Gate, trusted ...netip.Prefix) server {
			return serveGin(g, client.ByAddress(trusted...))
		},
		"echo": func(g *client.Gate, trusted ...netip.Prefix) server {
			return serveEcho(g, client.ByAddress(trusted...))
		},
		"fiber": func(g *client.Gate, trusted ...netip.Prefix) server {
			return serveFiber(g, client.FastByAddress(trusted...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range gated.Variants(name, node) {
				g, trusted := gated.Gate(t, &v)
				v.Check(t, start(t, serve(g, trusted...)))
			}
		})
	}
}

// TestRequestsThatAreNotLimited: the key function decides which requests a gate sees.
func TestRequestsThatAreNotLimited(t *testing.T) {
	c, err := client.New(client.Options{Addresses: []string{"127.0.0.1:1"}})
	must.Succeed(t, err)
	defer c.Close(t.Context())
	g, err := client.NewGate(client.GateOptions{Client: c, Outage: client.FailClosed,
		Rules: []string{"any"}})
	must.Succeed(t, err)
	never := func(*http.Request) (string, bool) { return "", false }
	for name, serve := range map[string]server{
		"gin": serveGin(g, never), "echo": serveEcho(g, never),
		"fiber": serveFiber(g, func(*fasthttp.RequestCtx) (string, bool) { return "", false }),
	} {
		resp, err := http.Get(start(t, serve))
		must.Succeed(t, err)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}

// start serves on a free port and returns the URL.
func start(t *testing.T, serve server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	done := make(chan struct{})
	go func() {
		_ = serve(ln) // it fails when the listener is closed
		close(done)
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		proctest.Wait(t, "the server to end", done)
	})
	return "http://" + ln.Addr().String()
}
