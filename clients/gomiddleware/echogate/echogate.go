package echogate

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"twotier.dev/twotier/httpapi/client"
)

// New returns middleware. key returns the key to count a request under, and false if the request is
// not limited, as for [client.Gate.Handler].
func New(g *client.Gate, key func(*http.Request) (string, bool)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			k, limited := key(c.Request())
			if !limited {
				return next(c)
			}
			d := g.Decide(c.Request().Context(), []client.Check{{Key: k}})
			d.SetHeaders(c.Response().Header().Set)
			if d.Passes() {
				return next(c)
			}
			return c.Blob(d.Status, client.ProblemType, d.Body())
		}
	}
}
