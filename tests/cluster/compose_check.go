// Loads a compose file as `docker compose` does, with the specification's own implementation, and prints what it means.
// test_compose.py builds it. The implementation has a command too, but that does not look whether what is named exists.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:])
	complain(err)
	project, err := options.LoadProject(context.Background())
	complain(err)
	written, err := project.MarshalJSON()
	complain(err)
	fmt.Println(string(written))
}

func complain(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
