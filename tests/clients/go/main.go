// The runner in Go. Plays a scenario against real servers and writes one line per step, as tests/clients/README.md
// describes. `call.go` contains the parts that are specific to the language.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: runner SCENARIO WORLD OUTPUT")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(scenarioFile, worldFile, outputFile string) (failed error) {
	var played scenario
	if err := readFile(scenarioFile, &played); err != nil {
		return err
	}
	var world world
	if err := readFile(worldFile, &world); err != nil {
		return err
	}
	defer world.close()
	output, err := os.Create(outputFile)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, output.Close()) }()

	player := newPlayer(&played, &world)
	defer player.close()
	for at := range played.Steps {
		step := &played.Steps[at]
		line, err := player.play(step)
		if err != nil {
			return fmt.Errorf("step %s: %w", step.Name, err)
		}
		if _, err := output.Write(append(canonical(nil, line), '\n')); err != nil {
			return err
		}
	}
	return nil
}
