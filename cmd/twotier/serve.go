package main

import (
	"context"
	"errors"
	"io"

	"twotier/internal/config"
)

// serve runs a server until ctx is done. (skeleton: being written)
func serve(ctx context.Context, cfg config.Config, stdout, stderr io.Writer) error {
	return errors.New("not there yet")
}
