from gpuparse.cli import main

main()
